// The first lines of the README work as they stand.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { STANDIN, run } from './help.mjs';

test('the README begins with lines that run', async () => {
  const folder = dirname(createRequire(import.meta.url).resolve('deadstop/package.json'));
  const [, lines] = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(folder, 'README.md'), 'utf8'));
  assert.ok(lines.trim().split('\n').length <= 6, lines);
  const checks = `
    const again = await session.client.chat.completions.create({ model: 'gpt-4o', messages }).catch((error) => error);
    console.log(again.name, answer.choices.length);`;
  const done = await run(lines + checks, { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: `${STANDIN}/v1` });
  assert.deepEqual([done.code, done.stdout], [0, 'DeadstopKilled 1\n'], done.stderr);
});

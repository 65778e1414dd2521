// The first lines of the README work as they stand.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { STANDIN, run } from './help.mjs';

const folder = dirname(createRequire(import.meta.url).resolve('deadstop/package.json'));
const [, lines] = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(folder, 'README.md'), 'utf8'));

test('the README begins with lines that compile, and the types stand on their own', () => {
  const strict = { target: 'es2022', module: 'node16', types: ['node'], strict: true, noEmit: true };
  const configs = {
    'readme-snippet.mts': { ...strict, skipLibCheck: true },
    // Without `skipLibCheck`, as strict projects have it.
    'own-types.mts': { ...strict, skipLibCheck: false },
  };
  writeFileSync('readme-snippet.mts', lines + 'export { answer };\n');
  writeFileSync('own-types.mts', `export { guard, session, share } from 'deadstop';\nexport { guardTools, middleware } from 'deadstop/ai';\n`);
  for (const [file, compilerOptions] of Object.entries(configs)) {
    writeFileSync(`${file}.json`, JSON.stringify({ compilerOptions, files: [file] }));
    const done = spawnSync('node_modules/.bin/tsc', ['--project', `${file}.json`], { encoding: 'utf8' });
    assert.equal(done.status, 0, `${file}: ${done.stdout}`);
  }
});

test('the README begins with lines that run', async () => {
  assert.ok(lines.trim().split('\n').length <= 6, lines);
  const checks = `
    const again = await ask().catch((error) => error);
    console.log(again.name, answer.choices.length);`;
  const done = await run(lines + checks, { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: `${STANDIN}/v1` });
  assert.deepEqual([done.code, done.stdout], [0, 'DeadstopKilled 1\n'], done.stderr);
});

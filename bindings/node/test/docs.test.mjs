// The programs of the documents run as they stand, against a stand-in provider.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { SCENARIOS, STANDIN, run } from './help.mjs';

const docs = join(dirname(SCENARIOS), '../../docs');
const pages = readdirSync(docs, { recursive: true }).filter((name) => name.endsWith('.md')).sort();
const programs = pages
  .map((page) => [page, [...readFileSync(join(docs, page), 'utf8').matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code]) => code).join('')])
  .filter(([, code]) => code);

test('there are pages with a program', () => assert.ok(programs.length > 0));

for (const [page, code] of programs) {
  test(`docs/${page}`, async () => {
    const check = '\nif (!session.getState().modelCalls) throw new Error("no model call went through the session");';
    const done = await run(code + check, { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: `${STANDIN}/v1` });
    assert.equal(done.code, 0, done.stderr);
  });
}

// One process, thousands of sessions: what ended is collected, without a word to the collector. Sessions used to stand
// in a `WeakMap`, from which they are taken late: 10,000 of them held 100 MiB.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run } from './help.mjs';

const program = `
  import { session as open, share } from 'deadstop';
  import OpenAI from 'openai';
  const answer = JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: 'It rains.' } }], usage: { prompt_tokens: 1, completion_tokens: 1 } });
  const headers = { 'content-type': 'application/json' };
  const client = share(new OpenAI({ apiKey: 'k', fetch: async () => new Response(answer, { headers }) }));
  const look = (page) => page;

  async function serve(from, to) {
    for (let n = from; n < to; n++) {
      const session = open({ agent: 'memory', session: 'm' + n, maxModelCalls: 5 });
      await session.run(async () => {
        await client.chat.completions.create({ model: 'gpt-4o', messages: [{ role: 'user', content: 'question ' + n }] });
        session.tool('look', look)(n);
      });
      // As a server does between two requests: native memory is freed then.
      await new Promise(setImmediate);
    }
    return process.memoryUsage().rss / 2 ** 20;
  }
  // Old objects are collected seldom, so that it takes thousands of sessions until memory is as large as it gets.
  console.log(JSON.stringify([await serve(0, 12_000), await serve(12_000, 22_000)]));`;

test('memory stays flat over ten thousand sessions', async () => {
  const { code, stdout, stderr } = await run(program);
  assert.equal(code, 0, stderr);
  const [before, after] = JSON.parse(stdout);
  assert.ok(after - before < 30, `${before.toFixed(1)} MiB before, ${after.toFixed(1)} MiB after`);
});

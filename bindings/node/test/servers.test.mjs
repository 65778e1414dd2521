// One process, many users: a session for each request over one shared client.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeadstopKilled, currentSession, guard, session as open, share } from 'deadstop';
import { ask, openai, thrown } from './help.mjs';

test('a session for each request over one shared client', async () => {
  const original = openai();
  const { fetch } = original;
  const client = share(original);
  assert.equal(client.constructor, original.constructor);
  assert.equal(original.fetch, fetch);

  const handle = async (n) => {
    const session = open({ agent: 'support', session: `r${n}`, maxModelCalls: n % 2 ? 1 : 30 });
    return session.run(async () => {
      assert.equal(currentSession(), session);
      const ends = [];
      for (let k = 0; k < 3; k++) ends.push(await ask(client).catch((error) => error));
      const killed = ends.filter((end) => end instanceof DeadstopKilled);
      assert.equal(killed.length, n % 2 ? 2 : 0);
      for (const { context } of killed) assert.equal(context.who, `support/r${n}`);
      return session.getState().modelCalls;
    });
  };
  const calls = await Promise.all(Array.from({ length: 200 }, (_, n) => handle(n)));
  assert.ok(calls.every((count, n) => (n % 2 ? count === 1 : count >= 3)), String(calls));
  assert.equal(currentSession(), undefined);
});

test('a shared client outside of every session', async () => {
  const original = openai();
  const client = share(original);
  const error = await thrown(() => ask(client));
  assert.match(error.message, /outside of every session/);
  assert.throws(() => guard(client, { agent: 'a' }), /guard the original/);
  assert.ok((await ask(original)).choices);
});

test('guarded copies leave the original alone', async () => {
  const original = openai();
  const [first, second] = [open({ agent: 'a' }), open({ agent: 'b' })];
  const [one, two] = [first.guarded(original), second.guarded(original)];
  await ask(one);
  void first.kill('enough');
  assert.ok((await thrown(() => ask(one))) instanceof DeadstopKilled);
  assert.ok((await ask(two)).choices && (await ask(original)).choices);
  assert.deepEqual([first.getState().modelCalls, second.getState().modelCalls], [1, 1]);
  // A tool that another session guards is charged to one session only.
  const look = first.tool('look', () => 'seen');
  assert.equal(second.tool(look, { name: 'look' })({}), 'seen');
  assert.deepEqual([first.getState().steps, second.getState().steps], [0, 1]);
});

const answered = (body, headers = {}) => async () =>
  new Response(JSON.stringify(body), { headers: { 'content-type': 'application/json', ...headers } });

test('windows of providers are read from answers', async () => {
  const headers = {
    'Anthropic-RateLimit-Unified-5h-Utilization': '0.62',
    'anthropic-ratelimit-unified-5h-reset': '4102444800',
  };
  const body = { id: 'm', type: 'message', role: 'assistant', content: [], usage: { input_tokens: 1, output_tokens: 1 } };
  const session = open({ agent: 'writer' });
  assert.deepEqual(session.getQuotas(), []);
  const client = session.guarded(openai({ fetch: answered({ choices: [], ...body }, headers) }));
  await ask(client);
  const [found] = session.getQuotas();
  assert.deepEqual([found.window, found.used, found.resetsMs], ['5h', 0.62, 4102444800000]);
});

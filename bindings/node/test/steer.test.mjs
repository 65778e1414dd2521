// Steers: the model is told behind a tool's result, or with the next request, and a callback hears it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeadstopBlocked, DeadstopKilled, session as open } from 'deadstop';
import { guardTools } from 'deadstop/ai';
import { thrown } from './help.mjs';

const STEERS = { loop: { steer_at: 3, block_at: 'off', end_at: 'off' } };
const LADDER = { loop: { steer_at: 3, block_at: 5, end_at: 8 } };

/** What the third call gives: the one that is steered. */
async function third(work) {
  await work();
  await work();
  return work();
}

test('text carries the advice, and the callback hears it', () => {
  const heard = [];
  const session = open({ agent: 'a', policy: LADDER, onSteer: (context) => heard.push(context) });
  const look = session.tool('get_build', ({ id }) => `build ${id} is queued`);
  assert.deepEqual([look({ id: 7 }), look({ id: 7 })], ['build 7 is queued', 'build 7 is queued']);
  const told = look({ id: 7 });
  assert.equal(heard.length, 1);
  assert.equal(told, `build 7 is queued\n\n[Deadstop] ${heard[0].advice}`);
  assert.deepEqual([heard[0].guard, heard[0].verdict], ['loop', 'steer']);
  assert.match(heard[0].advice, /get_build/);
});

test('after a compaction an agent may look again', () => {
  const session = open({ agent: 'a', policy: { loop: { block_at: 4, end_at: 50 } } });
  const read = session.tool('read_file', () => 'the same text');
  const reads = () => {
    for (let n = 0; n < 20; n++) {
      try {
        read({ path: 'a.md' });
      } catch (error) {
        assert.ok(error instanceof DeadstopBlocked);
        return n;
      }
    }
    return 20;
  };
  const first = reads();
  assert.ok(first > 0 && first < 20 && reads() === 0);
  session.compacted();
  assert.equal(reads(), first);
});

test('an agent that follows it goes on, and one that ignores it is ended', async () => {
  const follows = open({ agent: 'a', policy: LADDER });
  const look = follows.tool('get_build', () => 'queued');
  while (!look().includes('[Deadstop]'));
  const read = follows.tool('read_log', ({ page }) => `what page ${page} says`);
  for (const page of ['a', 'b', 'c']) assert.equal(read({ page }), `what page ${page} says`);
  assert.equal(follows.killed, false);

  const ignores = open({ agent: 'a', policy: LADDER });
  const again = ignores.tool('get_build', () => 'queued');
  const errors = [];
  for (let n = 0; n < 20 && !ignores.killed; n++) {
    try {
      again();
    } catch (error) {
      errors.push(error);
    }
  }
  assert.ok(errors.at(-1) instanceof DeadstopKilled);
  assert.ok(errors.length > 1 && errors.slice(0, -1).every((error) => error instanceof DeadstopBlocked));
});

test('objects, blocks and MCP results carry it; other values stay', async () => {
  const told = (result) => third(open({ agent: 'a', policy: STEERS }).tool('look', async () => result));
  const given = { status: 'queued' };
  assert.match((await told(given)).deadstop_note, /^\[Deadstop\] /);
  assert.deepEqual(given, { status: 'queued' }, 'the original stays');
  assert.match((await told([{ type: 'text', text: 'queued' }]))[1].text, /^\[Deadstop\] /);
  assert.match((await told({ content: [{ type: 'text', text: 'queued' }] })).content[1].text, /^\[Deadstop\] /);
  for (const value of [null, undefined, 7, true, [1, 2], new Map()]) assert.equal(await told(value), value);
});

test('an error carries it', async () => {
  const look = open({ agent: 'a', policy: STEERS }).tool('look', async () => {
    throw new Error('no such build');
  });
  for (let turn = 0; turn < 3; turn++) {
    const error = await thrown(look);
    assert.equal(error.message.includes('[Deadstop]'), turn === 2);
  }
});

test('AI SDK: a tool that yields gives the advised value last', async () => {
  const session = open({ agent: 'a', policy: STEERS });
  const { look } = guardTools(session, {
    look: {
      async *execute() {
        yield 'looking';
        yield 'queued';
      },
    },
  });
  let seen = [];
  for (let turn = 0; turn < 3; turn++) {
    seen = [];
    for await (const value of look.execute({})) seen.push(value);
  }
  assert.deepEqual(seen.slice(0, 2), ['looking', 'queued']);
  assert.match(seen[2], /^queued\n\n\[Deadstop\] /);
});

test('a policy can turn it off', async () => {
  const session = open({ agent: 'a', policy: { loop: { steer_at: 'off', block_at: 5 } } });
  assert.equal(await third(session.tool('look', () => 'queued')), 'queued');
});

test('a tool without a guard is steered with the next request, and the prefix of the prompt stays', async () => {
  const session = open({ agent: 'a', policy: STEERS });
  const sent = [];
  const { fetch } = globalThis;
  globalThis.fetch = async (_input, init) => {
    sent.push(Buffer.from(init.body).toString());
    const call = { id: `c${sent.length}`, type: 'function', function: { name: 'get_build', arguments: '{"id":7}' } };
    const message = { role: 'assistant', content: null, tool_calls: [call] };
    return Response.json({ choices: [{ message }], usage: { prompt_tokens: 9, completion_tokens: 3 } });
  };
  try {
    const messages = [{ role: 'user', content: 'is the build green?' }];
    for (let turn = 0; turn < 10; turn++) {
      const body = JSON.stringify({ model: 'gpt-4o', messages });
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
      const answer = await (await session.fetch('https://api.openai.com/v1/chat/completions', init)).json();
      const { message } = answer.choices[0];
      messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'queued' });
    }
  } finally {
    globalThis.fetch = fetch;
  }
  assert.deepEqual(sent.map((body) => body.includes('[Deadstop]')), [...Array(3).fill(false), ...Array(7).fill(true)]);
  sent.slice(1).forEach((body, at) => assert.ok(body.startsWith(sent[at].slice(0, -2)), `turn ${at + 1}`));
});

// A session with a server: it has the last word.

import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeadstopBlocked, DeadstopError, DeadstopKilled, guard, session as open } from 'deadstop';
import { LOOSE, Server, ask, eventually, openai, run, thrown } from './help.mjs';

const look = (session) => session.tool('look', async (n) => `seen ${n}`);
const path = (session) => `/api/sessions/${session.agent}/${session.name}`;

test('a kill at the server arrives', async (t) => {
  const server = await Server.start(t, LOOSE);
  const client = openai();
  const session = guard(client, { agent: 'mail', server: server.url });
  const health = session.getHealth();
  assert.deepEqual([health.authorityState, health.durability, health.server.connected], ['active', 'server', true]);
  const stream = await ask(client, 'gpt-4o-endless', { stream: true });
  const reading = thrown(async () => {
    for await (const _ of stream);
  });
  await sleep(200);
  const aborted = once(session.signal, 'abort');
  const began = performance.now();
  await server.ask('POST', `${path(session)}/kill`, { reason: 'from afar' });
  const killed = await reading;
  const took = performance.now() - began;
  t.diagnostic(`a kill at the server ended a stream here after ${took.toFixed(0)} ms`);
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.match(killed.message, /from afar/);
  assert.ok(took < 30_000, 'the provider would have gone on for a minute');
  await aborted;
  assert.equal(session.getHealth().durability, 'server');
  session.restore();
});

test('a kill here lasts there', async (t) => {
  const server = await Server.start(t, LOOSE);
  const session = open({ agent: 'mail', session: 's1', server: server.url });
  await look(session)(1);
  await session.kill('STOP');
  const { killed, authorityState, status, durability } = session.getHealth();
  assert.deepEqual([killed, authorityState, status, durability], [true, 'killed', 'inactive', 'server']);
  assert.equal((await server.ask('GET', path(session))).state, 'killed');
  const again = () => open({ agent: 'mail', session: 's1', server: server.url });
  assert.throws(again, { name: 'DeadstopKilled', message: /STOP/ });
  await server.stop();
  await server.begin(0);
  assert.throws(again, /STOP/);
});

test("the policy is the server's, and followed", async (t) => {
  const server = await Server.start(t, { ...LOOSE, access: { deny: ['rm'] } });
  const session = open({ agent: 'a', policy: 'observe', server: server.url });
  const rm = session.tool('rm', async () => 'gone');
  await assert.rejects(rm, DeadstopBlocked);
  assert.deepEqual(session.getState().forbiddenTools, ['rm']);
  const { document } = await server.ask('GET', '/api/policies/default');
  document.access.deny = ['look'];
  const put = await server.ask('PUT', '/api/policies/default', document, { 'if-match': '*' });
  assert.ok('version' in put, JSON.stringify(put));
  await eventually(() => session.getState().forbiddenTools[0] === 'look');
  assert.equal(await rm(), 'gone');
});

test('a hold and its end', async (t) => {
  const server = await Server.start(t, LOOSE);
  const session = open({ agent: 'a', server: server.url });
  await server.ask('POST', `${path(session)}/pause`, { reason: 'let me look' });
  await eventually(() => session.getHealth().authorityState === 'paused');
  await assert.rejects(look(session)(1), /let me look/);
  await server.ask('POST', `${path(session)}/resume`, { reason: 'fine' });
  await eventually(() => session.getHealth().authorityState === 'active');
  assert.equal(await look(session)(1), 'seen 1');
});

test('one budget over processes', async (t) => {
  const server = await Server.start(t, { ...LOOSE, steps: { max_steps: 6 } });
  const here = open({ agent: 'a', session: 's', server: server.url });
  const variables = here.scope('crew', () => here.environment());
  const program = `
    import { session } from 'deadstop';
    const there = session();
    const look = there.tool('look', (n) => n);
    for (let n = 0; n < 4; n++) look(n);
    console.log(there.agent, there.name, there.root.path.join());`;
  const done = await run(program, variables);
  assert.deepEqual([done.code, done.stdout], [0, 'a s crew\n'], done.stderr);
  let ran = 0;
  const killed = await thrown(async () => {
    for (; ran < 9; ran++) await look(here)(ran);
  });
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.equal(ran, 2);
  assert.equal((await server.ask('GET', path(here))).live.steps, 6);
});

test('fifty at once, and model calls, with a server', async (t) => {
  const server = await Server.start(t, { ...LOOSE, steps: { max_steps: 3 }, access: { deny: ['get_weather'] } });
  const session = open({ agent: 'a', server: server.url });
  let ran = 0;
  const tool = session.tool('tool', async () => ran++);
  await Promise.allSettled(Array.from({ length: 50 }, (_, n) => tool(n)));
  assert.equal(ran, 3);
  const client = openai();
  const other = guard(client, { agent: 'b', server: server.url });
  assert.match((await ask(client)).choices[0].message.content, /^The quick/);
  let text = '';
  for await (const chunk of await ask(client, 'gpt-4o-plain', { stream: true })) text += chunk.choices[0]?.delta.content ?? '';
  assert.match(text, /^The quick/);
  const blocked = await thrown(() => ask(client, 'gpt-4o-tool'));
  assert.ok(blocked instanceof DeadstopBlocked, blocked);
  await other.flush();
  const { live } = await server.ask('GET', path(other));
  assert.deepEqual([live.model_calls, live.in_flight], [3, 0]);
  other.restore();
});

test('the server is away, and back', async (t) => {
  const server = await Server.start(t, LOOSE);
  const session = open({ agent: 'a', server: server.url });
  assert.equal(await look(session)(1), 'seen 1');
  await session.flush();
  await server.stop();
  for (let n = 0; n < 5; n++) assert.equal(await look(session)(n), `seen ${n}`);
  await eventually(() => session.getHealth().authorityState === 'unreachable');
  const { status, server: line } = session.getHealth();
  assert.deepEqual([status, line.connected, line.failMode], ['degraded', false, 'open']);
  await server.begin(Number(new URL(server.url).port));
  await eventually(() => session.getHealth().status === 'active');
  await session.flush();
  await eventually(async () => (await server.ask('GET', path(session))).live?.steps >= 5);
});

test('closed means closed', async (t) => {
  const server = await Server.start(t, { ...LOOSE, fail_mode: 'closed' });
  const session = open({ agent: 'a', server: server.url });
  await look(session)(1);
  await server.stop();
  await eventually(() => session.getHealth().authorityState === 'unreachable');
  await assert.rejects(look(session)(2), /fail_mode is closed/);
  session.kill('it is over all the same');
  assert.equal(session.getHealth().durability, 'pending');
});

test('what cannot be reached is looked for', async () => {
  const taken = createServer().listen(0);
  await once(taken, 'listening');
  const { port } = taken.address();
  taken.close();
  const session = open({ agent: 'a', server: `http://127.0.0.1:${port}` });
  assert.equal(session.getHealth().authorityState, 'unreachable');
  assert.equal(await look(session)(1), 'seen 1');
  assert.throws(() => open({ agent: 'a', server: 'no address' }), DeadstopError);
});

test('a process ends with events unsent', async (t) => {
  const server = await Server.start(t, LOOSE);
  const program = `
    import { session } from 'deadstop';
    const open = session({ agent: 'a', session: 's', server: process.env.WHERE });
    const look = open.tool('look', (n) => n);
    for (let n = 0; n < 20; n++) look(n);
    console.log('done');`;
  const first = await run(program, { WHERE: server.url });
  assert.deepEqual([first.code, first.stdout, first.stderr], [0, 'done\n', '']);
  const { live } = await server.ask('GET', '/api/sessions/a/s');
  assert.deepEqual([live.steps, live.in_flight], [20, 0]);
  // And when it is away from the beginning.
  await server.stop();
  const second = await run(program, { WHERE: server.url });
  assert.deepEqual([second.code, second.stdout, second.stderr], [0, 'done\n', '']);
});

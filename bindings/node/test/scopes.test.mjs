// The containers of seed C, tools, and many calls at once.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { DeadstopBlocked, DeadstopKilled, guard, session as open } from 'deadstop';
import { LOOSE, ask, eventually, openai, run, thrown } from './help.mjs';

/** Containers: their children, and whether they run side by side. */
const KINDS = {
  pipeline: [[], false],
  pipe: [['pipeline'], false],
  connector: [['branch a', 'branch b'], false],
  'multi connector': [['connector 1', 'connector 2'], true],
  splitter: [['pipeline 1', 'pipeline 2', 'pipeline 3'], true],
  manifold: [['manager', 'worker 1', 'worker 2'], false],
  junction: [['moderator', 'participant 1', 'participant 2'], false],
  'distribution grid': [['router', 'worker 1', 'worker 2'], true],
};

for (const [kind, [children, parallel]] of Object.entries(KINDS)) {
  test(`a ${kind}`, async () => {
    const client = openai();
    const session = guard(client, { agent: 't', policy: LOOSE });
    const told = [];
    // Eleven tokens in, twenty-three out.
    const work = async () => {
      for (let n = 0; n < 1000; n++) {
        try {
          await ask(client);
        } catch (error) {
          if (!(error instanceof DeadstopBlocked)) throw error;
          await sleep(1); // until others in flight are done
        }
      }
    };
    const container = session
      .scope(kind)
      .limit({ outputTokenLimit: 60 })
      .onTripped((trip) => {
        told.push(trip);
        throw new Error('a callback cannot prevent anything');
      });
    const each = Object.fromEntries(children.map((child) => [child, work]));
    const killed = await thrown(() =>
      children.length === 0 ? container.run(work) : parallel ? container.parallel(each) : container.sequential(each),
    );
    assert.ok(killed instanceof DeadstopKilled, killed);
    const { context } = killed;
    assert.deepEqual([context.path.at(-1), context.depth, context.kind], [kind, 1, 'nested']);
    assert.ok(context.outputTokensSpent >= 23 && context.outputTokensSpent === context.accumulatedOutputTokens);
    assert.equal(told[0].reason, 'output_exceeded');
    assert.ok(container.signal.aborted && !session.signal.aborted);
    // What is beside the container goes on.
    assert.ok((await ask(client)).choices);
    session.restore();
  });
}

test('nested scopes and tasks', async () => {
  const session = open({ agent: 't' });
  const look = session.tool(async function look(n) {
    await sleep(0);
    return `seen ${n}`;
  });
  const worker = (name, times) =>
    session.scope(name, { maxSteps: 2 }, async () => {
      for (let n = 0; n < times; n++) await look(n);
    });
  const ends = await session.scope('crew', { maxSteps: 9 }, () => Promise.allSettled([worker('a', 2), worker('b', 3), worker('c', 1)]));
  assert.deepEqual(ends.map((end) => end.status), ['fulfilled', 'rejected', 'fulfilled']);
  const { context } = ends[1].reason;
  assert.deepEqual([context.path.at(-1), context.depth, context.reason], ['b', 2, 'max_steps']);
  const figures = Object.fromEntries(session.getState().scopes.map((scope) => [scope.path.join('/'), scope.steps]));
  assert.deepEqual(figures, { crew: 5, 'crew/a': 2, 'crew/b': 2, 'crew/c': 1 });
  // Scopes that run side by side share their parent's limit.
  const shared = await session.scope('pair', { maxSteps: 3 }, () =>
    Promise.allSettled(['x', 'y'].map((name) => session.scope(name, () => Promise.all([1, 2].map(look))))),
  );
  assert.equal(shared.filter((end) => end.status === 'rejected').length, 1);
  assert.equal(session.getState().steps, 8);
});

test('a scope by itself', async () => {
  const session = open({ agent: 't' });
  const look = session.tool('look', (n) => n);
  const crew = session.scope('crew', { maxSteps: 3 });
  const bound = crew.bind(look);
  assert.equal(bound(1), 1);
  assert.equal(crew.run(() => look(2)), 2);
  crew.limit({ maxModelCalls: 5 });
  assert.deepEqual(crew.getLimits(), { maxSteps: 3, maxModelCalls: 5 });
  assert.deepEqual([crew.getFigures().steps, crew.name, crew.path], [2, 'crew', ['crew']]);
  assert.equal(crew.scope('inner', (scope) => scope.path.join('/')), 'crew/inner');
  assert.deepEqual(crew.run(() => session.headers())['x-deadstop-scope'], 'crew');
  crew.kill('enough of this');
  assert.throws(() => bound(3), /enough of this/);
  assert.equal(look(3), 3);
});

test('tools keep their faces', async () => {
  const session = open({ agent: 't' });
  const add = session.tool(function add(a, b = 2) {
    return a + b;
  });
  assert.deepEqual([add(1), add.name, add.length], [3, 'add', 1]);
  assert.equal(session.tool(add), add);
  const fails = session.tool('fails', async () => {
    throw new RangeError('no');
  });
  await assert.rejects(fails, RangeError);
  const steps = session.tool('steps', async function* (n) {
    for (let at = 0; at < n; at++) yield at;
  });
  const got = [];
  for await (const n of steps(3)) got.push(n);
  assert.deepEqual(got, [0, 1, 2]);
  const odd = session.tool('odd', (value) => value);
  const circle = { big: 10n };
  circle.self = circle;
  assert.equal(odd(circle), circle);
  assert.equal(odd(undefined), undefined);
  const settled = session.getCaptures().filter((capture) => capture.what === 'settled');
  assert.deepEqual(settled.map((capture) => capture.name), ['add', 'fails', 'steps', 'odd', 'odd']);
  assert.equal(session.getState().inFlight, 0);
});

test('a loop is stopped', () => {
  const session = open({ agent: 'janitor', policy: 'strict' });
  const remove = session.tool(function delete_asset(asset_id) {
    return 'asset still exists';
  });
  const again = () => {
    for (let n = 0; n < 10; n++) remove('fact_sales');
  };
  assert.throws(again, /delete_asset on asset_id=fact_sales 3 times/);
  assert.equal(session.getState().steps, 2);
  assert.ok(session.signal.aborted);
});

test('log-only tells and refuses nothing', () => {
  const told = [];
  const session = open({ agent: 'j', policy: 'strict', mode: 'log-only', onTripped: (trip) => told.push(trip) });
  const remove = session.tool('delete_asset', ({ asset_id }) => `${asset_id} still exists`);
  for (let n = 0; n < 10; n++) remove({ asset_id: 'x' });
  assert.ok(told.length > 0 && told.every((trip) => trip.verdict === 'warn'));
  session.kill("a person's word counts all the same");
  assert.throws(() => remove({ asset_id: 'x' }), DeadstopKilled);
});

test('fifty at once and three run', async () => {
  const session = open({ agent: 't', maxSteps: 3 });
  let ran = 0;
  const look = session.tool(async function look() {
    ran++;
    await sleep(1);
  });
  const ends = await Promise.allSettled(Array.from({ length: 50 }, (_, n) => look(n)));
  assert.equal(ran, 3);
  assert.equal(ends.filter((end) => end.reason instanceof DeadstopKilled).length, 47);
});

test('a hundred model calls and not a cent over', async () => {
  // $0.00026 a call (gpt-4o: 11 in, 23 out) of a cent; up to $0.00105 is set aside for each.
  const client = openai();
  const session = guard(client, { agent: 't', maxCostUsd: 0.01, policy: { ...LOOSE, budget: { reservation: 'ceiling' } } });
  const ends = await Promise.allSettled(Array.from({ length: 100 }, () => ask(client, 'gpt-4o-plain', { max_tokens: 100 })));
  const refused = ends.filter((end) => end.status === 'rejected').map((end) => end.reason);
  assert.ok(refused.length > 0 && refused.length < 100);
  for (const error of refused) assert.ok(error instanceof DeadstopKilled || error instanceof DeadstopBlocked, error);
  const { costUsd, reservedUsd } = session.getState();
  assert.ok(costUsd > 0 && costUsd <= 0.01 && reservedUsd === 0, `${costUsd} ${reservedUsd}`);
  session.restore();
});

test('callbacks that throw change nothing', async () => {
  const warnings = [];
  const listen = (warning) => warnings.push(warning.message);
  process.on('warning', listen);
  const session = open({ agent: 't', policy: { access: { deny: ['rm'] } } });
  session.onTripped(() => {
    throw new Error('loud');
  });
  session.onTripped(async () => {
    throw new Error('late');
  });
  assert.throws(session.tool('rm', () => 1), DeadstopBlocked);
  await eventually(() => warnings.length === 2);
  process.off('warning', listen);
  assert.deepEqual(warnings, ['a callback threw Error: loud', 'a callback threw Error: late']);
});

test('a session cannot be cloned', () => {
  const session = open({ agent: 't' });
  for (const held of [session, { inside: session }, session.scope('x')]) {
    assert.throws(() => structuredClone(held), { name: 'DeadstopError', message: /lives in its thread.*environment\(\)/ });
  }
  assert.equal(typeof JSON.stringify({ session }), 'string');
});

test('workers have sessions of their own', async () => {
  const program = `
    const { parentPort } = require('node:worker_threads');
    const { session, DeadstopKilled } = require('deadstop');
    const own = session({ agent: 'worker', maxSteps: 2 });
    const look = own.tool('look', (n) => n);
    let ran = 0;
    try {
      for (;;) { look(ran); ran++; }
    } catch (error) {
      parentPort.postMessage([ran, error instanceof DeadstopKilled, own.signal.aborted]);
    }`;
  const session = open({ agent: 't' });
  const workers = Array.from({ length: 4 }, () => new Worker(program, { eval: true }));
  const said = await Promise.all(workers.map((worker) => once(worker, 'message')));
  for (const [message] of said) assert.deepEqual(message, [2, true, true]);
  // A worker that is ended in the middle does not disturb the others.
  const endless = new Worker(
    `const { session } = require('deadstop');
     const look = session({ agent: 'w', policy: 'observe' }).tool('look', async (n) => n);
     require('node:worker_threads').parentPort.postMessage('on');
     setInterval(() => { for (let n = 0; n < 100; n++) look(n); }, 1);`,
    { eval: true },
  );
  await once(endless, 'message');
  await endless.terminate();
  assert.equal(session.tool('look', () => 7)(), 7);
});

test('nothing keeps a process from its end', async () => {
  const program = `
    import { session } from 'deadstop';
    const open = session({ agent: 't' });
    open.signal.addEventListener('abort', () => console.log('aborted'));
    open.tool('look', async () => 1)();
    process.on('exit', () => open.kill('at the very end'));`;
  const done = await run(program);
  assert.deepEqual([done.code, done.stdout, done.stderr], [0, 'aborted\n', '']);
});

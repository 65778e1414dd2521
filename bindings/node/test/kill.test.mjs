// The kill switch of seed B: kill, what comes after, and recovery.

import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeadstopBlocked, DeadstopError, DeadstopKilled, guard, session as open } from 'deadstop';
import OpenAI from 'openai';
import pRetry from 'p-retry';
import { MESSAGES, STANDIN, anthropic, ask, eventually, openai, refusals, run, thrown } from './help.mjs';

test('the walk-through', async () => {
  const client = openai();
  const { fetch } = client;
  const session = guard(client, { agent: 'my-agent', policy: 'strict', mode: 'enforce' });
  assert.equal(session.client, client);
  assert.ok(session.client instanceof OpenAI);
  const answer = await ask(session.client);
  assert.match(answer.choices[0].message.content, /^The quick/);
  assert.deepEqual([session.getState().inputTokens, session.getState().outputTokens], [11, 23]);

  for (const again of [client, client.withOptions({ timeout: 3000 })]) {
    assert.throws(() => guard(again, { agent: 'my-agent' }), { name: 'DeadstopError', message: /already guarded by .* restore\(\)/ });
  }

  assert.equal(session.signal.aborted, false);
  session.kill('it deletes my mail');
  const version = session.getState().stateVersion;
  for (let n = 0; n < 2; n++) {
    const killed = await thrown(() => ask(session.client));
    assert.ok(killed instanceof DeadstopKilled);
    assert.match(killed.message, /it deletes my mail/);
    assert.equal(killed.reason, 'session_killed');
    assert.deepEqual([killed.context.who, killed.context.depth, killed.context.inputTokensSpent], [`my-agent/${session.name}`, 0, 11]);
  }
  assert.ok(session.signal.aborted && session.signal.reason instanceof DeadstopKilled);
  const state = session.getState();
  assert.deepEqual([state.killed, state.stateVersion], [true, version]);
  const { killed, authorityState, status, durability } = session.getHealth();
  assert.deepEqual([killed, authorityState, status, durability], [true, 'killed', 'inactive', 'process']);

  session.restore();
  assert.equal(client.fetch, fetch);
  assert.ok((await ask(client)).choices);
  const recovery = guard(client, { agent: 'my-agent', mode: 'log-only' });
  assert.ok((await ask(recovery.client)).choices);
  recovery.restore();
});

test('strikes end the session', () => {
  const policy = { access: { deny: ['rm'] }, session_limits: { circuit_breaker: { consecutive_blocks: 3 } } };
  const session = open({ agent: 'a', policy });
  const rm = session.tool('rm', () => null);
  assert.throws(rm, DeadstopBlocked);
  assert.throws(rm, DeadstopBlocked);
  assert.throws(rm, DeadstopKilled);
  assert.ok(session.killed);
});

test('no client retries a kill', async () => {
  const key = 'retries';
  const client = openai({ apiKey: key });
  const session = guard(client, { agent: 'a', maxModelCalls: 1 });
  await ask(client);
  let tries = 0;
  const killed = await thrown(() =>
    pRetry(() => {
      tries++;
      return ask(client);
    }, { retries: 5 }),
  );
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.equal(tries, 1);
  assert.deepEqual([killed.retryable, killed.isRetryable, killed.code], [false, false, 'DEADSTOP_KILLED']);
  // With a signal of the caller's own the client takes another way.
  assert.ok((await thrown(() => ask(client, undefined, {}, { signal: new AbortController().signal }))) instanceof DeadstopKilled);
  assert.equal(refusals(session), 2, 'a client tried again');
  const seen = await (await fetch(`${STANDIN}/_seen/${key}`)).json();
  assert.equal(seen.requests, 1);
  session.restore();
});

test('a tool call that an answer asks for is refused', async () => {
  for (const [client, work] of [
    [openai(), (client) => ask(client, 'gpt-4o-tool')],
    [anthropic(), (client) => client.messages.create({ model: 'claude-tool', max_tokens: 9, messages: MESSAGES })],
  ]) {
    const told = [];
    const session = guard(client, { agent: 'a', policy: { access: { deny: ['get_weather'] } }, onTripped: (trip) => told.push(trip) });
    const blocked = await thrown(() => work(client));
    assert.ok(blocked instanceof DeadstopBlocked, blocked);
    assert.match(blocked.message, /get_weather/);
    assert.equal(told.length, 1);
    session.kill('x');
    assert.ok((await thrown(() => work(client))) instanceof DeadstopKilled);
    session.restore();
  }
});

test('what waits is cancelled, streams end, tools end', async () => {
  const [one, other] = [openai(), anthropic()];
  const session = guard(one, { agent: 'a' });
  session.attach(other);
  assert.ok(session.guards(one) && session.guards(other));
  const got = { openai: 0, anthropic: 0 };
  const work = [
    () => ask(one, 'gpt-4o-endless'),
    async () => {
      for await (const _ of await ask(one, 'gpt-4o-endless', { stream: true })) got.openai++;
    },
    async () => {
      const create = { model: 'claude-endless', max_tokens: 9, messages: MESSAGES, stream: true };
      for await (const _ of await other.messages.create(create)) got.anthropic++;
    },
    session.tool(async function sleeps() {
      await sleep(60_000, undefined, { ref: false });
    }),
    () => session.fetch(`${STANDIN}/v1/chat/completions`, { method: 'POST', body: JSON.stringify({ model: 'gpt-4o-endless', messages: MESSAGES }) }),
  ];
  const ends = work.map((one) => thrown(one));
  await eventually(() => session.getState().inFlight === 5 && got.openai > 2 && got.anthropic > 2);
  const began = performance.now();
  session.kill('STOP');
  for (const end of await Promise.all(ends)) {
    assert.ok(end instanceof DeadstopKilled, end);
    assert.match(end.message, /STOP/);
  }
  assert.ok(performance.now() - began < 30_000, 'the provider would have gone on for a minute');
  assert.equal(session.getState().inFlight, 0, 'calls that were in flight are booked');
  session.restore();
});

test('a caller that cancels is not killed', async () => {
  const client = openai();
  const session = guard(client, { agent: 'a' });
  const controller = new AbortController();
  const waits = thrown(() => ask(client, 'gpt-4o-endless', {}, { signal: controller.signal }));
  await eventually(() => session.getState().inFlight === 1);
  controller.abort();
  assert.equal((await waits).constructor.name, 'APIUserAbortError');
  // Nor is a caller that leaves a stream in the middle.
  let got = 0;
  for await (const _ of await ask(client, 'gpt-4o-endless', { stream: true })) if (++got === 5) break;
  await eventually(() => session.getState().inFlight === 0);
  assert.ok(session.getState().outputTokens > 0 && !session.killed);
  session.restore();
});

test('a stream brings what it brought before', async () => {
  const client = openai();
  const chunks = async () => {
    const all = [];
    for await (const chunk of await ask(client, 'gpt-4o-plain', { stream: true })) all.push(chunk);
    return all;
  };
  const plain = await chunks();
  const session = guard(client, { agent: 'a' });
  const guarded = await chunks();
  // The usage was asked for on the quiet: until the last chunk, which is kept back, it is null.
  for (const chunk of guarded) {
    assert.equal(chunk.usage, null);
    delete chunk.usage;
  }
  assert.deepEqual(guarded, plain);
  assert.equal(session.getState().outputTokens, 23);
  const raw = await ask(client).asResponse();
  assert.equal(raw.url, `${STANDIN}/v1/chat/completions`);
  assert.equal((await raw.json()).usage.prompt_tokens, 11);
  const { data } = await ask(client, 'gpt-4o-gzip-plain').withResponse();
  assert.match(data.choices[0].message.content, /^The quick/);
  const bad = await thrown(() => ask(client, 'gpt-4o-bad'));
  assert.equal(bad.status, 400);
  assert.equal(session.getState().inFlight, 0);
  session.restore();
});

test('captures are flushed', async () => {
  const captures = join(tmpdir(), `deadstop-${process.pid}.jsonl`);
  const client = openai();
  const session = guard(client, { agent: 'a', captures });
  await ask(client);
  session.kill('enough');
  const lines = readFileSync(captures, 'utf8').trim().split('\n');
  rmSync(captures);
  assert.ok(lines.length >= 3 && lines.at(-1).includes('"what":"killed"'));
  assert.equal(session.getCaptures()[0].what, 'admitted');
  session.restore();
});

test('from a signal handler', async () => {
  const program = `
    import { guard, DeadstopKilled } from 'deadstop';
    import OpenAI from 'openai';
    const client = new OpenAI({ apiKey: 'k', baseURL: process.env.STANDIN + '/v1' });
    const session = guard(client, { agent: 'a' });
    process.on('SIGUSR2', () => session.kill('a signal'));
    const stream = await client.chat.completions.create({ model: 'gpt-4o-endless', stream: true, messages: [{ role: 'user', content: 'go' }] });
    try {
      for await (const _ of stream) if (!session.said) console.log(session.said = 'reading');
    } catch (error) {
      console.log(error instanceof DeadstopKilled, error.message.includes('a signal'));
      process.exit(0);
    }`;
  const running = run(program);
  running.child.stdout.once('data', () => running.child.kill('SIGUSR2'));
  const done = await running;
  assert.deepEqual([done.code, done.stdout], [0, 'reading\ntrue true\n'], done.stderr);
});

test('a stream that was dropped is settled when it is collected', async () => {
  const program = `
    import { guard } from 'deadstop';
    import OpenAI from 'openai';
    const client = new OpenAI({ apiKey: 'k', baseURL: process.env.STANDIN + '/v1' });
    const session = guard(client, { agent: 'a' });
    async function some() {
      const stream = await client.chat.completions.create({ model: 'gpt-4o-endless', stream: true, messages: [{ role: 'user', content: 'go' }] });
      const events = stream[Symbol.asyncIterator]();
      for (let n = 0; n < 5; n++) await events.next();
    }
    await some();
    const before = session.getState().inFlight;
    for (let n = 0; n < 200 && session.getState().inFlight > 0; n++) {
      gc();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const { inFlight, outputTokens } = session.getState();
    console.log(before, inFlight, outputTokens > 0);
    process.exit(0);`;
  const done = await run(program, {}, ['--expose-gc']);
  assert.deepEqual([done.code, done.stdout], [0, '1 0 true\n'], done.stderr);
});

test('mistakes are told', () => {
  for (const [options, message] of [
    [{ policy: '[budget]\nmax_cost_used = 1' }, /did you mean/],
    [{ policy: 'nowhere.toml' }, /cannot read the policy/],
    [{ mode: 'loud' }, /log-only/],
    [{ maxSteps: 0 }, /maxSteps: must be 1 or more/],
    [{ maxStep: 3 }, /no option `maxStep`.*maxSteps/],
    [{ agent: 'a\nb' }, /cannot be a name/],
  ]) {
    assert.throws(() => open({ agent: 'a', ...options }), (error) => error instanceof DeadstopError && message.test(error.message));
  }
  for (const client of [{}, null, undefined, () => 1]) {
    assert.throws(() => guard(client, { agent: 'a' }), /cannot be guarded|pass a client/);
  }
  assert.throws(() => guard({ callTool() {} }), /wrapMcp/);
  assert.throws(() => guard({ doGenerate() {} }), /deadstop\/ai/);
});

test('one package, however it is loaded', () => {
  const required = createRequire(import.meta.url)('deadstop');
  assert.equal(required.DeadstopKilled, DeadstopKilled);
  assert.equal(required.guard, guard);
});

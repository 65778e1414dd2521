// Statements of the kill switch's and the token limits' pages that once did not hold.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeadstopBlocked, DeadstopKilled, guard, session as open } from 'deadstop';
import retry from 'async-retry';
import { handleWhen, retry as policy, ConstantBackoff } from 'cockatiel';
import { backOff } from 'exponential-backoff';
import { MESSAGES, Server, anthropic, ask, eventually, openai, run, thrown } from './help.mjs';

process.env.XDG_STATE_HOME = mkdtempSync(join(tmpdir(), 'deadstop-state-'));

test('the kill comes out of every helper of the clients as it is', async () => {
  const client = openai();
  const session = guard(client, { agent: 'a' });
  const copy = client.withOptions({ timeout: 5000 });
  void session.kill('STOP');
  const tools = [{ type: 'function', function: { name: 'look', parameters: {}, parse: JSON.parse, function: () => 'seen' } }];
  const request = { model: 'gpt-4o-plain', messages: MESSAGES };
  for (const one of [client, copy]) {
    const ways = {
      stream: () => one.chat.completions.stream(request).finalMessage(),
      iterated: async () => {
        for await (const _ of one.chat.completions.stream(request));
      },
      done: () => one.chat.completions.stream(request).done(),
      runTools: () => one.chat.completions.runTools({ ...request, tools }).finalContent(),
      responses: () => one.responses.stream({ model: 'gpt-4o-plain', input: 'hi' }).finalResponse(),
    };
    for (const [name, way] of Object.entries(ways)) {
      const error = await thrown(way);
      assert.ok(error instanceof DeadstopKilled, `${name}: ${error?.constructor?.name}: ${error}`);
    }
  }
  const seen = await new Promise((resolve) => client.chat.completions.stream(request).on('error', resolve));
  assert.ok(seen instanceof DeadstopKilled);
  session.restore();
  assert.equal(Object.hasOwn(client.chat.completions, 'stream'), false);
  assert.ok((await client.chat.completions.stream(request).finalMessage()).content);

  const other = anthropic();
  const second = guard(other, { agent: 'a' });
  void second.kill('STOP');
  const message = { model: 'claude-plain', max_tokens: 9, messages: MESSAGES };
  for (const way of [() => other.messages.stream(message).finalMessage(), () => other.messages.stream(message).done()]) {
    assert.ok((await thrown(way)) instanceof DeadstopKilled);
  }
  second.restore();
  assert.ok((await other.messages.stream(message).finalMessage()).content);
});

test('a stream of a helper that is cut tells the kill', async () => {
  const client = openai();
  const session = guard(client, { agent: 'a' });
  const stream = client.chat.completions.stream({ model: 'gpt-4o-endless', messages: MESSAGES });
  stream.once('chunk', () => void session.kill('STOP'));
  assert.ok((await thrown(() => stream.done())) instanceof DeadstopKilled);
  session.restore();
});

test('libraries that retry', async () => {
  const session = open({ agent: 'a' });
  let tries = 0;
  const look = session.tool('look', async () => 'seen');
  const work = () => {
    tries++;
    return look({});
  };
  void session.kill('STOP');
  assert.ok((await thrown(() => retry(work, { retries: 5, minTimeout: 1 }))) instanceof DeadstopKilled);
  assert.equal(tries, 1, 'async-retry looks for `bail`');
  // These two retry every error unless they are told: the README says how.
  tries = 0;
  const steady = policy(handleWhen((error) => !(error instanceof DeadstopKilled)), { maxAttempts: 5, backoff: new ConstantBackoff(1) });
  assert.ok((await thrown(() => steady.execute(work))) instanceof DeadstopKilled);
  assert.ok((await thrown(() => backOff(work, { startingDelay: 1, retry: (error) => !(error instanceof DeadstopKilled) }))) instanceof DeadstopKilled);
  assert.equal(tries, 2);
});

/** A client whose provider says that an answer took so many tokens. */
function answering(input, output) {
  const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: 0 };
  const body = { id: 'c', object: 'chat.completion', created: 0, model: 'gpt-4o', choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Hi' } }], usage };
  return openai({ fetch: async () => Response.json(body) });
}

test('a trip and the frozen state have the answer that killed', async () => {
  for (const [input, output, reason] of [
    [2000, 61000, 'input_and_output_exceeded'],
    [10, 61000, 'output_exceeded'],
    [2000, 10, 'input_exceeded'],
  ]) {
    const told = [];
    const session = guard(answering(input, output), { agent: 'a', session: 's', inputTokenLimit: 1000, outputTokenLimit: 1000, onTripped: (context) => told.push(context) });
    const killed = await thrown(() => ask(session.client));
    assert.ok(killed instanceof DeadstopKilled, killed);
    const at = killed.context;
    assert.deepEqual([at.reason, at.inputTokensSpent, at.outputTokensSpent], [reason, input, output]);
    assert.deepEqual([at.accumulatedInputTokens, at.accumulatedOutputTokens], [input, output]);
    assert.deepEqual([at.who, at.path, at.guard, at.verdict], ['a/s', ['a', 's'], 'tokens', 'kill']);
    assert.ok(killed.message.includes(`[${reason} | input_tokens=${input} | output_tokens=${output} | elapsed_ms=`), killed.message);
    const state = session.getState();
    assert.deepEqual([state.inputTokens, state.outputTokens, state.inFlight], [input, output, 0]);
    const later = await thrown(() => ask(session.client));
    assert.deepEqual([later.reason, later.trip.code], [reason, 'session_killed_tokens']);
    assert.deepEqual(told.map((context) => context.reason), [reason], 'once per trip');
    assert.ok(told[0].elapsedMs >= 0 && told[0].message.startsWith('stopped: '));
    session.restore();
  }
});

test('limits that have no meaning are refused, and others stay', () => {
  const session = open({ agent: 'a', maxCostUsd: 5, maxModelCalls: 7 });
  session.limit({ maxSteps: 100 });
  assert.deepEqual(session.root.getLimits(), { maxCostUsd: 5, maxModelCalls: 7, maxSteps: 100 });
  session.limit({ maxCostUsd: null });
  assert.deepEqual(session.root.getLimits(), { maxModelCalls: 7, maxSteps: 100 });
  for (const bad of [NaN, Infinity, -Infinity]) {
    for (const work of [() => open({ agent: 'a', maxSteps: bad }), () => session.limit({ maxCostUsd: bad }), () => session.scope('x', { maxSteps: bad })]) {
      assert.throws(work, { name: 'DeadstopError', message: /is not a limit; leave it out/ });
    }
  }
});

test('a callback is not called by its own calls, nor for warnings', async () => {
  let told = 0;
  const loose = { access: { deny: ['rm'] }, strikes: { enabled: false }, loop: { action: 'warn' } };
  const session = open({ agent: 'a', policy: loose });
  const rm = session.tool('rm', async () => null);
  const look = session.tool('look', async () => 'same');
  session.onTripped(async () => {
    told++;
    await sleep(1);
    assert.ok((await thrown(() => rm())) instanceof DeadstopBlocked);
  });
  for (let n = 0; n < 12; n++) await look();
  assert.equal(told, 0, 'warnings are no trips');
  assert.ok((await thrown(() => rm())) instanceof DeadstopBlocked);
  await sleep(30);
  assert.equal(told, 1);
});

/** A server that opens sessions and then never answers. */
async function hung(t) {
  const held = [];
  const server = createServer((request, response) => {
    if (request.url === '/api/sessions') response.end(JSON.stringify({ agent: 'a', session: 's', policy: {} }));
    else held.push(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { held, url: `http://127.0.0.1:${server.address().port}` };
}

test('a kill ends a call that waits for a hung server, and blocks nothing', async (t) => {
  // The server is in this process, so that opening, which waits, happens in another one.
  const { url, held } = await hung(t);
  const program = `
    import { session as open, DeadstopKilled } from 'deadstop';
    const session = open({ agent: 'a', session: 's', server: '${url}' });
    const look = session.tool('look', async () => 'seen');
    const waiting = look().catch((error) => error);
    await new Promise((resolve) => process.stdin.once('data', resolve));
    const began = performance.now();
    const lasting = session.kill('STOP');
    const blocked = performance.now() - began;
    const error = await waiting;
    const waited = performance.now() - began;
    console.log(JSON.stringify({ blocked, waited, killed: error instanceof DeadstopKilled, durability: session.getHealth().durability }));
    await lasting;
    process.exit(0);`;
  const child = run(program, { XDG_STATE_HOME: process.env.XDG_STATE_HOME }, [], 'pipe');
  await eventually(() => held.length >= 2);
  child.child.stdin.end('go\n');
  const done = await child;
  const told = JSON.parse(done.stdout || '{}');
  assert.ok(told.killed && told.blocked < 500 && told.waited < 2000, done.stdout + done.stderr);
  assert.equal(told.durability, 'pending');
});

test('a kill that the server did not hear of survives the process, and opening throws it', async (t) => {
  const server = await Server.start(t);
  const { url } = server;
  const program = `
    import { session as open } from 'deadstop';
    const session = open({ agent: 'a', session: 's1', server: '${url}' });
    console.log('open');
    await new Promise((resolve) => process.stdin.once('data', resolve));
    void session.kill('STOP');
    process.reallyExit(0);`;
  const child = run(program, { XDG_STATE_HOME: process.env.XDG_STATE_HOME }, [], 'pipe');
  await new Promise((resolve) => child.child.stdout.once('data', resolve));
  await server.stop();
  child.child.stdin.end('go\n');
  await child;
  await server.begin(Number(new URL(url).port));
  const killed = await thrown(() => open({ agent: 'a', session: 's1', server: url }));
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.match(killed.message, /STOP/);
});

test('with a server a handler reads why', async (t) => {
  const server = await Server.start(t, { steps: { max_steps: 2 } });
  const session = open({ agent: 'a', session: 's', server: server.url });
  const look = session.tool('look', async ({ n }) => `seen ${n}`);
  for (let n = 0; n < 2; n++) await look({ n });
  for (let n = 2; n < 5; n++) {
    const killed = await thrown(() => look({ n }));
    assert.deepEqual([killed.constructor.name, killed.context.reason], ['DeadstopKilled', 'max_steps'], String(killed));
  }
  session.restore();
});

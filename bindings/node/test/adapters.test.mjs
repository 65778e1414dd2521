// The Vercel AI SDK and MCP, as they come from npm.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createOpenAI } from '@ai-sdk/openai';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { generateText, isStepCount, stepCountIs, streamText, tool, wrapLanguageModel } from 'ai';
import { DeadstopBlocked, DeadstopKilled, session as open } from 'deadstop';
import { guardTools, middleware } from 'deadstop/ai';
import { z } from 'zod';
import { LOOSE, STANDIN, eventually, refusals, thrown } from './help.mjs';

const steps = isStepCount ?? stepCountIs;
const provider = (options) => createOpenAI({ apiKey: 'k', baseURL: `${STANDIN}/v1`, ...options });
const wrapped = (session, name) => wrapLanguageModel({ model: provider().chat(name), middleware: middleware(session) });
const quiet = { onError() {} };

test('AI SDK: a model', async () => {
  const session = open({ agent: 'a', maxModelCalls: 2 });
  const model = wrapped(session, 'gpt-4o-plain');
  assert.match((await generateText({ model, prompt: 'go' })).text, /^The quick/);
  assert.deepEqual([session.getState().inputTokens, session.getState().outputTokens], [11, 23]);
  const streamed = streamText({ model, prompt: 'go', ...quiet });
  assert.match(await streamed.text, /^The quick/);
  assert.deepEqual([session.getState().outputTokens, session.getState().inFlight], [46, 0]);
  const killed = await thrown(() => generateText({ model, prompt: 'go', maxRetries: 5 }));
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.equal(refusals(session), 1, 'it was tried again');
});

test('AI SDK: a kill ends calls and streams', async () => {
  const session = open({ agent: 'a' });
  const model = wrapped(session, 'gpt-4o-endless');
  const waits = thrown(() => generateText({ model, prompt: 'go' }));
  let got = 0;
  const errors = [];
  const reads = (async () => {
    for await (const part of streamText({ model, prompt: 'go', ...quiet }).fullStream) {
      if (part.type === 'text-delta') got++;
      if (part.type === 'error') errors.push(part.error);
    }
  })().catch((error) => errors.push(error));
  await eventually(() => got > 2 && session.getState().inFlight === 2);
  session.kill('STOP');
  assert.ok((await waits) instanceof DeadstopKilled);
  await reads;
  assert.ok(errors.length > 0 && errors.every((error) => error instanceof DeadstopKilled), String(errors));
});

test('AI SDK: tools', async () => {
  const session = open({ agent: 'a', policy: 'strict' });
  let ran = 0;
  const get_weather = tool({
    inputSchema: z.object({ city: z.string(), days: z.number() }),
    execute: async ({ city }) => `${++ran} degrees in ${city}`.replace(/^\d+/, 'some'),
  });
  const [one] = Object.values(guardTools(session, { get_weather, elsewhere: tool({ inputSchema: z.object({}) }) }));
  assert.equal(await one.execute({ city: 'Rome', days: 1 }, {}), 'some degrees in Rome');
  // The provider asks for the same call again and again.
  const model = wrapped(session, 'gpt-4o-loop');
  const killed = await thrown(() =>
    generateText({ model, prompt: 'go', tools: guardTools(session, { get_weather }), stopWhen: steps(30) }),
  );
  assert.ok(killed instanceof DeadstopKilled, killed);
  assert.ok(ran > 1 && ran < 10, String(ran));
});

test('AI SDK: any provider with the guarded fetch', async () => {
  const session = open({ agent: 'a', policy: { ...LOOSE, access: { deny: ['get_weather'] } } });
  const { chat } = provider({ fetch: session.fetch });
  assert.match((await generateText({ model: chat('gpt-4o-plain'), prompt: 'go' })).text, /^The quick/);
  assert.equal(session.getState().outputTokens, 23);
  const blocked = await thrown(() => generateText({ model: chat('gpt-4o-tool'), prompt: 'go', maxRetries: 0 }));
  assert.ok([blocked, blocked.cause].some((error) => error instanceof DeadstopBlocked), blocked);
  session.kill('STOP');
  const killed = await thrown(() => generateText({ model: chat('gpt-4o-plain'), prompt: 'go', maxRetries: 5 }));
  assert.ok(killed instanceof DeadstopKilled, killed);
});

async function connected() {
  const server = new McpServer({ name: 'files', version: '1' });
  const ran = [];
  let [began, cancelled] = [false, false];
  server.registerTool('read', { inputSchema: { path: z.string() } }, async ({ path }) => {
    ran.push(path);
    return { content: [{ type: 'text', text: `text of ${path}` }], isError: path === 'bad' };
  });
  server.registerTool('wait', { inputSchema: {} }, async (_, { signal }) => {
    signal.addEventListener('abort', () => (cancelled = true));
    began = true;
    await sleep(60_000, undefined, { ref: false });
    return { content: [] };
  });
  const client = new Client({ name: 'test', version: '1' });
  const [here, there] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(there), client.connect(here)]);
  return { client, ran, began: () => began, cancelled: () => cancelled };
}

test('MCP', async () => {
  const { client, ran, began, cancelled } = await connected();
  const session = open({ agent: 'a', maxSteps: 4 });
  assert.equal(session.wrapMcp(client), client);
  assert.throws(() => session.wrapMcp(client), /already guarded/);
  assert.throws(() => session.wrapMcp({}), /no client/);
  assert.equal((await client.listTools()).tools.length, 2);
  const read = (path) => client.callTool({ name: 'read', arguments: { path } });
  assert.equal((await read('a')).content[0].text, 'text of a');
  assert.equal((await read('bad')).isError, true);
  const streamed = [];
  for await (const message of client.experimental.tasks.callToolStream({ name: 'read', arguments: { path: 'b' } })) streamed.push(message);
  assert.deepEqual([streamed.at(-1).type, session.getState().steps], ['result', 3]);
  const waits = thrown(() => client.callTool({ name: 'wait', arguments: {} }));
  await eventually(began);
  session.kill('STOP');
  assert.ok((await waits) instanceof DeadstopKilled);
  await eventually(cancelled);
  assert.ok((await thrown(() => read('c'))) instanceof DeadstopKilled);
  assert.deepEqual(ran, ['a', 'bad', 'b']);
  session.restore();
  assert.equal((await read('d')).content[0].text, 'text of d');
});

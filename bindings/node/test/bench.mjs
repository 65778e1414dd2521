// What a guard costs: a guarded call against the bare client, in one run, and the guard alone.

import { createServer } from 'node:http';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { guard, session as open } from 'deadstop';
import OpenAI from 'openai';

const ROUNDS = 9;
const CALLS = 100;
const policy = { preset: 'strict', loop: { enabled: false }, text_loop: { enabled: false } };
const say = (what, figure, unit) => console.log(`${what.padEnd(34)}${figure.toFixed(unit === 'µs' ? 2 : 3).padStart(10)} ${unit}`);
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/** Microseconds that a call takes. */
async function each(work, times) {
  const began = performance.now();
  for (let n = 0; n < times; n++) await work(n);
  return ((performance.now() - began) * 1000) / times;
}

/** The same for what gives no promise: the median of small batches, which others seldom interrupt. */
function alone(work, batches) {
  const times = [];
  for (let batch = 0; batch < batches; batch++) {
    const began = performance.now();
    for (let n = 0; n < 20; n++) work(n);
    times.push(((performance.now() - began) * 1000) / 20);
  }
  return median(times);
}

const answer = JSON.stringify({
  id: 'c', object: 'chat.completion', created: 1, model: 'gpt-4o',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'It rains.' } }],
  usage: { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 },
});
const upstream = createServer((request, response) => {
  request.resume().on('end', () => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  });
}).listen(0, '127.0.0.1');
await once(upstream, 'listening');
const options = { apiKey: 'k', baseURL: `http://127.0.0.1:${upstream.address().port}/v1` };
const [bare, guarded] = [new OpenAI(options), new OpenAI(options)];
const session = guard(guarded, { agent: 'bench', policy });

const ask = (client) => (n) =>
  client.chat.completions.create({ model: 'gpt-4o', messages: [{ role: 'user', content: `question ${n}` }] });
await each(ask(bare), 200);
await each(ask(guarded), 200);
// Side by side, so that whatever else the machine does hits both alike.
const rounds = [];
for (let round = 0; round < ROUNDS; round++) rounds.push([await each(ask(bare), CALLS), await each(ask(guarded), CALLS)]);
say('model call, bare', Math.min(...rounds.map(([without]) => without)), 'µs');
say('model call, guarded', Math.min(...rounds.map(([, withGuard]) => withGuard)), 'µs');
say(`ratio, median of ${ROUNDS} rounds`, median(rounds.map(([without, withGuard]) => withGuard / without)), '');

// Without a network the bare call is quick, so that what the guard adds stands out.
const headers = { 'content-type': 'application/json', 'x-ratelimit-remaining-requests': '99', 'x-request-id': 'r' };
const inMemory = { apiKey: 'k', fetch: async () => new Response(answer, { headers }) };
const [direct, watched] = [new OpenAI(inMemory), new OpenAI(inMemory)];
const watching = guard(watched, { agent: 'bench', policy });
// Processor time of short batches in turn: others who use the machine change little. The first ones are compiled.
const BATCH = 50;
const times = [[], []];
for (let n = 0; n < 12_000; n += BATCH) {
  for (const [side, client] of [direct, watched].entries()) {
    const began = process.cpuUsage();
    for (let each = n; each < n + BATCH; each++) await ask(client)(each);
    const { user, system } = process.cpuUsage(began);
    if (n >= 4000) times[side].push((user + system) / BATCH);
  }
}
const [without, withGuard] = times.map(median);
say('model call in memory, bare', without, 'µs');
say('model call in memory, added', withGuard - without, 'µs');
watching.restore();

const tools = open({ agent: 'bench', policy });
const search = (query, limit) => (limit > 0 ? 'three pages' : query);
const plain = alone(() => search('deadstop', 10), 3000);
const wrapped = tools.tool('search', search);
say('tool call, the guard alone', alone(() => wrapped('deadstop', 10), 3000) - plain, 'µs');

const require = createRequire(import.meta.url);
const { Engine } = require(join(dirname(require.resolve('deadstop/package.json')), 'lib/native.js'));
const engine = new Engine(JSON.stringify({ agent: 'bench', policy: JSON.stringify(policy) }), () => undefined);
const body = '{"model":"gpt-4o","messages":[{"role":"user","content":"How is the weather in Paris?"}]}';
const bytes = Buffer.from('{"choices":[{"message":{"content":"It rains."}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}');
engine.door(0, 'openai', 'api.openai.com', 'POST', '/v1/chat/completions');
// What the guarded `fetch` asks for an answer that is a document.
const exchange = () => {
  const call = engine.request(0, 0, body) >>> 2;
  engine.whole(call, 200, 'application/json', bytes);
};
say('model call, the guard alone', alone(exchange, 3000), 'µs');
// What any judge needs at least: both bodies read.
const read = () => [JSON.parse(body), JSON.parse(bytes.toString())];
say('model call, JSON.parse', alone(read, 3000), 'µs');
session.restore();
upstream.closeAllConnections();
upstream.close();

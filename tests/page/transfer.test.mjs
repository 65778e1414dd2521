// What Now costs on the wire with 200 live sessions, and that its numbers are the server's.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, until } from './rig.mjs';

const SESSIONS = 200;
const CALLS = 240;
const MOST = 150 * 1024;
const WATCHED_MS = 30_000;
let world;
let browser;

async function step(session, id) {
  const at = `/api/sessions/agent-${session % 14}/run-${session}`;
  const asked = await world.api('POST', `${at}/proposal`, { calls: [{ id, tool: 'search', arguments: { about: `${session} ${id}` } }] });
  assert.ok(asked.status < 300, JSON.stringify(asked.body));
  await world.api('POST', `${at}/receipt`, { id, status: 'ok', text: `found ${id} for ${session}`, wait: false });
}
async function think(session, id) {
  const at = `/api/sessions/agent-${session % 14}/run-${session}`;
  const asked = await world.api('POST', `${at}/preflight`, { id, model: 'gpt-4o', input_tokens: 100 });
  assert.ok(asked.status < 300, JSON.stringify(asked.body));
  await world.api('POST', `${at}/receipt`, { id, status: 'ok', usage: { input: 1000, output: 100, cache_read: 0, cache_write: 0 }, wait: false });
}
async function all(count, work) {
  let next = 0;
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (next < count) await work(next++);
  }));
}

before(async () => {
  world = await rig({ policy: 'balanced' });
  browser = await browse();
  await all(SESSIONS, (session) => step(session, 'first'));
  await all(CALLS, (number) => think(number % SESSIONS, `m${number}`));
}, { timeout: 600_000 });
after(async () => {
  await browser?.close();
  await world?.stop();
});

test('the server adds the spend up, whatever it is split by', async () => {
  const whole = (await world.api('GET', '/api/status?limit=1')).body.project.cost_usd;
  const sum = (items) => items.reduce((total, one) => total + one.cost_usd, 0);
  for (const query of ['step=10s', 'step=minute', 'step=minute&by=agent', 'step=minute&by=model', 'step=hour&by=agent', 'step=day']) {
    const found = await until(query, async () => {
      const { items } = (await world.api('GET', `/api/spend?${query}`)).body;
      return Math.abs(sum(items) - whole) < 1e-6 && items;
    });
    assert.equal(found.reduce((total, one) => total + one.calls, 0), CALLS, query);
  }
  assert.equal((await world.api('GET', '/api/spend?step=10s&from=0')).status, 422);
});

test('Now with 200 live sessions takes little of the line', { timeout: 120_000 }, async (t) => {
  const tab = await open(browser);
  const { page } = tab;
  const line = await page.context().newCDPSession(page);
  await line.send('Network.enable');
  let bytes = 0;
  const api = new Map();
  line.on('Network.requestWillBeSent', ({ requestId, request }) => api.set(requestId, new URL(request.url).pathname));
  const by = {};
  const add = (id, many) => {
    const path = api.get(id) ?? '';
    if (!path.startsWith('/api/')) return;
    bytes += many;
    by[path] = (by[path] ?? 0) + many;
  };
  // The length of a finished answer holds all of it; a stream does not finish, its pieces count.
  line.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => add(requestId, encodedDataLength));
  line.on('Network.dataReceived', ({ requestId, encodedDataLength, dataLength }) => api.get(requestId) === '/api/events' && add(requestId, encodedDataLength || dataLength));
  await page.goto(world.url);
  await page.getByText(`of ${SESSIONS}`).first().waitFor({ timeout: 60_000 });
  await page.waitForLoadState('load');
  await page.locator('.line.live').waitFor();
  const first = bytes;
  t.diagnostic(`first view: ${first} bytes of data ${JSON.stringify(by)}`);
  assert.ok(first <= MOST, `${first} bytes at first: ${JSON.stringify(by)}`);

  // Four calls a second, as they are made by live agents.
  const end = Date.now() + WATCHED_MS;
  for (let number = 0; Date.now() < end; number += 1) {
    await step(number % SESSIONS, `live${number}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  const later = bytes - first;
  t.diagnostic(`${WATCHED_MS / 1000} s: ${later} bytes of data ${JSON.stringify(by)}`);
  assert.ok(later <= MOST, `${later} bytes in ${WATCHED_MS} ms: ${JSON.stringify(by)}`);
  await tab.close();
});

// Very many sessions, a very long session, and answers that this test makes up: the page stays quick.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady } from './rig.mjs';

const SESSIONS = 10_000;
const CALLS = 20_000;
let world;
let browser;
let tab;
let page;
before(async () => {
  world = await rig();
  browser = await browse();
  await steady(world, 'real', 'one', 2);
  tab = await open(browser);
  page = tab.page;
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

const json = (route, body) => route.fulfill({ status: 200, contentType: 'application/json', body: JSON.stringify(body) });

/** Answers a list from a function, in pages as the server does. */
function paged(most, make) {
  return (route) => {
    const asked = new URL(route.request().url()).searchParams;
    const from = Number(asked.get('cursor') ?? 0);
    const to = Math.min(most, from + Number(asked.get('limit') ?? 50));
    return json(route, { items: Array.from({ length: to - from }, (_, index) => make(from + index)), next: to < most ? String(to) : null });
  };
}

/** Scrolls to the end of a list, and tells how long the page was busy at most. */
async function scrolled(name) {
  return page.getByRole('region', { name, exact: true }).evaluate(async (box) => {
    let longest = 0;
    const observer = new PerformanceObserver((list) => list.getEntries().forEach((entry) => (longest = Math.max(longest, entry.duration))));
    observer.observe({ type: 'longtask' });
    for (let step = 0, still = 0; step < 1000 && still < 15; step += 1) {
      const before = box.scrollTop;
      box.scrollTop += 5000;
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 8)));
      still = box.scrollTop === before ? still + 1 : 0;
      // At the end so far, the next page may be on its way.
      if (still > 0) await new Promise((resolve) => setTimeout(resolve, 60));
    }
    observer.disconnect();
    return { longest, rows: box.querySelectorAll('tbody tr').length, text: box.innerText };
  });
}

test('ten thousand sessions scroll', { timeout: 120_000 }, async () => {
  const now = Date.now();
  await page.route('**/api/sessions?**', paged(SESSIONS, (index) => ({
    number: String(index), agent: `agent-${index % 40}`, name: `session-${index}`, state: 'running', why: null, tags: index % 7 ? [] : ['loop_detected'], provider: 'openai', model: 'gpt-4o',
    opened_ms: now - index * 1000, used_ms: now - index * 900, calls: index, loops: 0, incidents: 0, tokens: index * 10, cost_usd: index / 1000,
  })));
  await page.goto(`${world.url}/sessions`);
  await page.getByRole('link', { name: 'session-0', exact: true }).waitFor();
  const { longest, rows, text } = await scrolled('Sessions');
  assert.ok(text.includes(`session-${SESSIONS - 1}`), 'the last one is reached');
  assert.ok(rows < 120, `${rows} rows are in the page`);
  assert.ok(longest < 400, `the page was busy for ${longest} ms at a time`);
  await tab.fine('sessions');
});

test('a session of twenty thousand calls scrolls and steps', { timeout: 120_000 }, async () => {
  const began = Date.now() - 9e6;
  await page.route('**/api/sessions/real/one/calls?**', paged(CALLS, (index) => ({
    id: String(1_000_000 + index), agent: 'real', session: 'one', nested: index % 3 ? null : 'crew/worker', position: index + 1, kind: index % 2 ? 'tool' : 'model', name: index % 2 ? 'search' : 'gpt-4o', server: 'openai',
    at_ms: began + index * 400 + Math.floor(index / 1000) * 120_000, duration_ms: 300, verdict: 'allow', guard: null, reason: null, status: 'ok', input_tokens: 900, output_tokens: 90, cache_read_tokens: 0, cache_write_tokens: 0, cost_usd: 0.001, incident: null,
  })));
  await page.route('**/api/calls/1*', (route) => json(route, { id: route.request().url().split('/').pop(), said: null }));
  await page.goto(`${world.url}/sessions/real/one`);
  await page.getByText('20,000 of 20,000').waitFor({ timeout: 60_000 });
  await page.getByText('Spent').waitFor();
  const box = page.getByRole('region', { name: 'Calls', exact: true });
  await box.evaluate((element) => (element.scrollTop = 0));
  const { longest, rows, text } = await scrolled('Calls');
  assert.ok(text.includes('20,000'));
  assert.ok(rows < 120, `${rows} rows are in the page`);
  assert.ok(longest < 400, `the page was busy for ${longest} ms at a time`);
  await page.getByText('// nothing for').first().waitFor({ state: 'attached' }).catch(() => {});
  await page.getByRole('heading', { level: 1 }).focus();
  const took = await page.evaluate(async () => {
    const start = performance.now();
    for (let step = 0; step < 20; step += 1) {
      document.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return performance.now() - start;
  });
  await page.getByText('19,980 of 20,000').waitFor();
  assert.ok(took < 4000, `twenty steps took ${took} ms`);
  await page.getByRole('link', { name: 'Scopes' }).click();
  await page.getByText('worker', { exact: true }).waitFor();
  await tab.fine('long session');
});

test('megabytes of text do not hold the page up', async () => {
  const text = `<b>${'very long '.repeat(300_000)}`;
  await page.unroute('**/api/calls/1*');
  await page.route('**/api/calls/1*', (route) => json(route, { id: route.request().url().split('/').pop(), said: { request: text, response: text, request_chars: text.length, response_chars: text.length, request_cut: false, response_cut: false } }));
  await page.goto(`${world.url}/sessions/real/one`);
  await page.getByText('3,000,003 characters').first().waitFor({ timeout: 60_000 });
  assert.ok((await page.locator('pre').first().innerText()).length <= 4000);
  await tab.fine('megabytes');
});

test('a policy is tried before it is saved', async () => {
  await page.goto(`${world.url}/agents/real/guards`);
  let asked;
  await page.route('**/api/backtest', (route) => {
    asked = route.request().postDataJSON();
    const stopped = [{ agent: 'real', session: 'one', number: '1', call: '1', at_ms: Date.now(), verdict: 'kill', guard: 'loop', reason: 'repetition', explain: 'stopped: it repeats itself', calls_after: 12, cost_after_usd: 0.5, was_stopped: false }];
    const lines = [{ progress: { done: 1, of: 2 } }, { result: { sessions: 2, calls: 40, warned: 3, blocked: 0, killed: 1, saved_usd: 0.5, by_guard: {}, stopped } }];
    return route.fulfill({ status: 200, contentType: 'application/x-ndjson', body: lines.map((line) => `${JSON.stringify(line)}\n`).join('') });
  });
  await page.getByRole('region', { name: 'Loop detection' }).getByLabel('Repeats in a row').fill('2');
  await page.getByRole('button', { name: 'Backtest' }).click();
  await page.getByText('It would have stopped 1 of the last 2 sessions').waitFor();
  await page.getByRole('link', { name: 'one', exact: true }).waitFor();
  assert.equal(asked.policy.loop.threshold, 2);
  assert.equal(asked.agent, 'real');
  assert.ok(asked.policy.project, 'a whole policy is tried');
  assert.equal((await world.api('GET', '/api/agents/real/prevention-config')).body.is_agent_override, false, 'and nothing is saved by it');
  await tab.fine('backtest');
});

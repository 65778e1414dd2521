// Answers that this test makes up: very long ones, and what a backtest says.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady } from './rig.mjs';

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

test('megabytes of text do not hold the page up', async () => {
  const text = `<b>${'very long '.repeat(300_000)}`;
  await page.route('**/api/calls/*', (route) => json(route, { id: route.request().url().split('/').pop(), said: { request: text, response: text, request_chars: text.length, response_chars: text.length, request_cut: false, response_cut: false } }));
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

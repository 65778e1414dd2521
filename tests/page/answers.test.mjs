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
    const stopped = [{ agent: 'real', session: 'one', number: '1', call: '1', at_ms: Date.now(), verdict: 'kill', guard: 'loop', reason: 'repetition', explain: 'stopped: it repeats itself', calls_after: 12, cost_after_usd: 0.5, was_stopped: false, before: null }];
    const freed = [{ agent: 'real', session: 'two', number: '2', before: { verdict: 'block', guard: 'budget', reason: 'budget_exceeded', call: '2', at_ms: Date.now() } }];
    const agents = [{ agent: 'real', sessions: 2, calls: 40, before: { warned: 3, refused: 7, stopped: 1 }, after: { warned: 3, refused: 0, stopped: 1 } }];
    const lines = [{ progress: { done: 1, of: 2 } }, { result: { sessions: 2, left_out: 0, calls: 40, warned: 3, asked: 0, blocked: 0, killed: 1, saved_usd: 0.5, by_guard: {}, agents, stopped, freed } }];
    return route.fulfill({ status: 200, contentType: 'application/x-ndjson', body: lines.map((line) => `${JSON.stringify(line)}\n`).join('') });
  });
  await page.getByRole('region', { name: 'Loop detection' }).getByLabel('Repeats in a row').fill('2');
  await page.getByRole('button', { name: 'Backtest' }).click();
  await page.getByText('It would have stopped 1 of the last 2 sessions').waitFor();
  await page.getByRole('link', { name: 'one', exact: true }).waitFor();
  await page.getByRole('link', { name: 'two', exact: true }).waitFor();
  await page.getByText('1 session that was stopped would have run on').waitFor();
  assert.match(await page.locator('tr[data-agent=real]').innerText(), /7 → 0/, 'before and after of the agent');
  assert.equal(asked.policy.loop.threshold, 2);
  assert.equal(asked.agent, 'real');
  assert.ok(asked.policy.project, 'a whole policy is tried');
  assert.equal((await world.api('GET', '/api/agents/real/prevention-config')).body.is_agent_override, false, 'and nothing is saved by it');
  await tab.fine('backtest');
});

test('a node that has to do without the others says so on every page, and Settings names the nodes', async () => {
  const banner = page.getByRole('alert').filter({ hasText: 'This node is on its own' });
  const changed = (change) => page.route('**/api/status?*', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), ...change } });
  });
  await page.goto(`${world.url}/settings/kept`);
  await page.getByRole('heading', { name: 'Settings' }).waitFor();
  await page.waitForFunction(() => performance.getEntriesByType('resource').some((one) => one.name.includes('/api/status')));
  assert.equal(await banner.count(), 0);
  assert.equal(await page.getByText('that share their state').count(), 0, 'a server that is alone has no nodes to name');

  const nodes = ['east-1', 'east-2', 'west-1'];
  await changed({ cluster: { node: 'east-2', nodes, degraded: null } });
  await page.goto(`${world.url}/settings/kept`);
  await page.getByText('one of 3 nodes that share their state: east-1, east-2, west-1').waitFor();
  assert.equal(await banner.count(), 0, 'all is well');

  await page.unroute('**/api/status?*');
  const degraded = { since_ms: Date.now() - 65_000, what: 'the state that all nodes share is away (<b>refused</b>): this node judges by what it knows' };
  await changed({ cluster: { node: 'east-2', nodes, degraded }, database: { since_ms: Date.now() - 5000, what: 'the database takes no writes (full)' } });
  for (const path of ['/', '/agents', '/sessions/real/one', '/settings']) {
    await page.goto(world.url + path);
    await banner.getByText(/for 1 min \d+ s now/).waitFor();
    await banner.getByText('(<b>refused</b>)').waitFor();
    await page.getByRole('alert').filter({ hasText: 'The database is away' }).getByText('(full)').waitFor();
  }
  assert.deepEqual(await tab.barriers(), []);
  await page.unroute('**/api/status?*');
  await page.goto(world.url);
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  await banner.waitFor({ state: 'hidden' });
  await tab.fine('a node alone');
});

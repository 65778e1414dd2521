// Ten thousand sessions and a session of twenty thousand calls in a real database, served by the real
// program: nothing in here is made up by the test but what the seed has written.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, until } from './rig.mjs';

const CALLS = 20_000;
let small;
let large;
let browser;
let tab;
let page;
before(async () => {
  [small, large] = await Promise.all([rig(), rig({ seeded: true })]);
  browser = await browse();
  tab = await open(browser);
  page = tab.page;
}, { timeout: 600_000 });
after(async () => {
  await browser?.close();
  await Promise.all([small?.stop(), large?.stop()]);
});

/** When a page first shows something, and when its list is there; the best of a few. */
async function painted(url, ready) {
  const best = { first: Infinity, list: Infinity };
  for (let round = 0; round < 3; round += 1) {
    await page.goto(url);
    await ready();
    const found = await page.evaluate(() => ({
      first: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, list: performance.now(),
    }));
    best.first = Math.min(best.first, found.first);
    best.list = Math.min(best.list, found.list);
  }
  return best;
}

const nodes = () => page.evaluate(() => document.querySelectorAll('*').length);

/** Scrolls a list until it ends, or so far; gives how many nodes the page had at most. */
async function scroll(name, steps) {
  return page.getByRole('region', { name, exact: true }).evaluate(async (box, many) => {
    let most = 0;
    for (let step = 0, still = 0; step < many && still < 15; step += 1) {
      const before = box.scrollTop;
      box.scrollTop += 20_000;
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 8)));
      most = Math.max(most, document.querySelectorAll('*').length);
      still = box.scrollTop === before ? still + 1 : 0;
      if (still > 0) await new Promise((resolve) => setTimeout(resolve, 60));
    }
    return { most, text: box.innerText };
  }, steps);
}

test('the page and its list of sessions open as quickly as on an empty server', { timeout: 600_000 }, async (t) => {
  const list = () => page.getByRole('link', { name: /^(run-|the-long)/ }).first().waitFor();
  const few = await painted(`${small.url}/sessions`, () => page.getByText(/No session/).first().waitFor());
  const many = await painted(`${large.url}/sessions`, list);
  t.diagnostic(`first paint ${few.first.toFixed(0)} ms empty, ${many.first.toFixed(0)} ms with 10,000 sessions; list after ${few.list.toFixed(0)} and ${many.list.toFixed(0)} ms`);
  assert.ok(many.first < 3 * few.first + 50, `first paint: ${many.first} against ${few.first}`);
  assert.ok(many.list < 5 * few.list + 100, `the list: ${many.list} against ${few.list}`);
});

test('ten thousand real sessions scroll to the end, and the page stays small', { timeout: 600_000 }, async (t) => {
  await page.goto(`${large.url}/sessions`);
  await page.getByRole('link', { name: /^run-/ }).first().waitFor();
  const before = await nodes();
  const { most, text } = await scroll('Sessions', 2000);
  t.diagnostic(`${before} nodes before, ${most} at most`);
  assert.ok(text.includes('run-00000'), 'the oldest is reached');
  assert.ok(most < 2 * before + 500, `${most} nodes, of ${before} at first`);
  await tab.fine('sessions');
});

test('a real session of twenty thousand calls scrolls, and steps with its guards', { timeout: 600_000 }, async (t) => {
  const began = Date.now();
  await page.goto(`${large.url}/sessions/agent-00/the-long-one`);
  await page.getByText('20,000 of 20,000').waitFor({ timeout: 60_000 });
  t.diagnostic(`all calls read after ${Date.now() - began} ms`);
  const before = await nodes();
  await page.getByRole('region', { name: 'Calls', exact: true }).evaluate((element) => (element.scrollTop = 0));
  const { most, text } = await scroll('Calls', 400);
  assert.ok(text.includes('20,000'));
  assert.ok(most < 2 * before + 500, `${most} nodes, of ${before} at first`);
  // The guards as they stood: worked out by the server from the calls' facts.
  await page.getByText('Guards at that moment').waitFor();
  const gauge = page.getByRole('list', { name: 'Guards of the session' }).getByText(/repeated calls \d+ of \d+/);
  await gauge.waitFor({ timeout: 60_000 });
  await page.getByRole('heading', { level: 1 }).focus();
  for (let step = 0; step < 5; step += 1) await page.keyboard.press('k');
  await page.getByText('19,995 of 20,000').waitFor();
  await gauge.waitFor();
  await tab.fine('the long session');
});

test('a step far inside costs no more than one at the start', { timeout: 600_000 }, async (t) => {
  const { body } = await large.api('GET', '/api/sessions/agent-00/the-long-one/calls?limit=1000');
  const newest = (await large.api('GET', '/api/sessions/agent-00/the-long-one/calls?limit=1000&order=newest')).body;
  const state = (call) => large.api('GET', `/api/sessions/agent-00/the-long-one/calls/${call.id}/state`);
  const mean = async (calls) => {
    const start = performance.now();
    for (const call of calls) assert.equal((await state(call)).status, 200);
    return (performance.now() - start) / calls.length;
  };
  await until('the first answer', async () => (await state(newest.items[0])).status === 200);
  const [first, last] = [await mean(body.items.slice(0, 100)), await mean(newest.items.slice(0, 100))];
  const number = (await state(newest.items[0])).body.number;
  t.diagnostic(`a step: ${first.toFixed(1)} ms near the start, ${last.toFixed(1)} ms near the end`);
  assert.equal(number, CALLS);
  // From the start on, the last would cost a hundred times as much.
  assert.ok(last < 20 * first + 20, `${last} ms against ${first} ms`);
});

// Now with thousands of sessions at once: the page renders only the rows in sight, whatever happens
// meanwhile.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig } from './rig.mjs';

const MANY = 450;
/** Rows and nodes that a window shows, generously. Without virtualising there are a hundred rows at first. */
const MOST_ROWS = 45;
const MOST_NODES = 1600;
let world;
let browser;

/** A call of a session: asked for and, if it is wanted, ended. */
async function step(session, id) {
  const at = `/api/sessions/agent-${session % 10}/run-${session}`;
  const asked = await world.api('POST', `${at}/proposal`, { calls: [{ id, tool: 'search', arguments: { about: `${session} ${id}` } }] });
  assert.ok(asked.status < 300, JSON.stringify(asked.body));
  await world.api('POST', `${at}/receipt`, { id, status: 'ok', text: `found ${id} for ${session}`, wait: false });
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
  await all(MANY, (session) => step(session, 'first'));
}, { timeout: 600_000 });
after(async () => {
  await browser?.close();
  await world?.stop();
});

const seen = (page) => page.evaluate(() => ({
  nodes: document.querySelectorAll('*').length,
  rows: document.querySelectorAll('[aria-label="Running sessions"] tbody tr:not(.space)').length,
  listed: Number(document.querySelector('[aria-label="Running sessions"] table').ariaRowCount) - 1,
}));

function small(found, where) {
  assert.ok(found.rows > 5 && found.rows <= MOST_ROWS, `${where}: ${JSON.stringify(found)}`);
  assert.ok(found.nodes <= MOST_NODES, `${where}: ${JSON.stringify(found)}`);
}

for (const width of [1280, 390]) {
  test(`hundreds of running sessions at ${width} px scroll in their box, and few are in the page`, { timeout: 600_000 }, async (t) => {
    const tab = await open(browser, { width });
    const { page } = tab;
    await page.goto(world.url);
    await page.getByText(`These are the 100 nearest to a limit, of ${MANY}`).waitFor({ timeout: 60_000 });
    const first = await seen(page);
    assert.equal(first.listed, 100);
    small(first, 'at first');
    // Scrolling loads more, until all are there.
    let most = first;
    const end = Date.now() + 60_000;
    for (;;) {
      await page.evaluate(() => {
        const box = document.querySelector('[aria-label="Running sessions"]');
        box.scrollTop = box.scrollHeight;
      });
      // The rows of the new place are drawn with one of the next frames.
      await page.waitForFunction(() => document.querySelectorAll('[aria-label="Running sessions"] tbody tr:not(.space)').length > 5);
      const found = await seen(page);
      if (found.nodes > most.nodes) most = found;
      small(found, 'while scrolling');
      if (found.listed === MANY) break;
      assert.ok(Date.now() < end, `all are listed: ${JSON.stringify(found)}`);
    }
    const tall = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(tall < 5000, `the page is ${tall} px tall, however many sessions run`);
    t.diagnostic(`${tall} px tall; ${first.nodes} nodes at first, ${most.nodes} at most, of ${MANY} sessions`);
    await tab.fine('many');
    await tab.close();
  });
}

test('no column hides under another, at any width', { timeout: 600_000 }, async () => {
  for (const width of [730, 1000, 1180, 1280, 1360, 1490, 1900]) {
    const tab = await open(browser, { width });
    await tab.page.goto(world.url);
    const box = tab.page.getByRole('region', { name: 'Running sessions' });
    await box.getByRole('button', { name: /^Stop / }).first().waitFor();
    const spill = await box.evaluate((element) => element.scrollWidth - element.clientWidth);
    assert.ok(spill <= 0, `at ${width} px the list is ${spill} px wider than its place`);
    await tab.close();
  }
});

test('what streams in is shown, and holds nothing up', { timeout: 600_000 }, async (t) => {
  const tab = await open(browser);
  const { page } = tab;
  await page.addInitScript(() => {
    window.long = [];
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.long.push(entry.duration))).observe({ type: 'longtask' });
  });
  await page.goto(`${world.url}/?calls=1`);
  await page.getByRole('region', { name: 'Running sessions' }).waitFor();
  await page.locator('.line.live').waitFor();
  await all(600, (number) => step(number % MANY, `s${number}`));
  await step(7, 'the-last');
  await page.getByRole('list', { name: /^Events/ }).getByRole('link', { name: 'agent-7 / run-7' }).first().waitFor();
  const found = await seen(page);
  small(found, 'after 600 calls');
  t.diagnostic(`${found.nodes} nodes; ${await page.evaluate(() => window.long.length)} long tasks, the longest ${await page.evaluate(() => Math.round(Math.max(0, ...window.long)))} ms`);
  // The page still does what it is told, however the rows change their places.
  const named = await page.evaluate(() => {
    const button = document.querySelector('[aria-label="Running sessions"] button[aria-label^="Stop "]');
    button.click();
    return button.ariaLabel.slice('Stop '.length);
  });
  await page.getByRole('dialog').getByRole('heading', { name: named }).waitFor();
  await tab.fine('stream');
  await tab.close();
});

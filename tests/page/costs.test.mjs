// The budget in the chart of costs: a dashed line, at the height that the bars beside it say is right.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady, until } from './rig.mjs';

const CALLS = 3;
let world;
let browser;
before(async () => {
  world = await rig();
  browser = await browse();
  await steady(world, 'spender', 'one', CALLS);
  // All of it must be added up before the first is compared: sums are written some time after the calls.
  const added = async (by) => (await world.api('GET', `/api/costs?by=${by}`)).body.items.reduce((sum, one) => sum + one.calls, 0);
  await until('its costs', async () => (await added('hour')) === CALLS && (await added('day')) === CALLS);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

/** Gives the project a budget, or none. */
async function allow(budget) {
  const { effective, version } = (await world.api('GET', '/api/policies/default')).body;
  const policy = { ...effective, project: { ...effective.project, budget: { ...effective.project.budget, ...budget } } };
  const answer = await world.api('PUT', '/api/policies/default', policy, { 'if-match': `"${version}"` });
  assert.ok(answer.status < 300, JSON.stringify(answer.body));
}

const dearest = async (by) => Math.max(...(await world.api('GET', `/api/costs?by=${by}`)).body.items.map((one) => one.cost_usd));

/**
 * What is drawn: how high the tallest bar is, how high above its foot the line of the budget is, and how much of
 * the plot's width the line covers; all in pixels, read from the picture itself.
 */
const drawn = (page) => page.getByRole('img', { name: /^Cost by/ }).evaluate((box) => {
  const colour = (name) => {
    const probe = document.createElement('i');
    probe.style.color = `var(${name})`;
    box.append(probe);
    const found = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
    probe.remove();
    return found;
  };
  const canvas = box.querySelector('canvas');
  const { width, height } = canvas;
  const paper = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d', { willReadFrequently: true });
  paper.drawImage(canvas, 0, 0);
  const { data } = paper.getImageData(0, 0, width, height);
  const is = (wanted, x, y) => {
    const at = 4 * (y * width + x);
    return data[at + 3] > 100 && wanted.every((part, index) => Math.abs(part - data[at + index]) < 30);
  };
  const [bar, line] = [colour('--chart-1'), colour('--stop')];
  const plot = box.querySelector('.u-over').clientWidth * devicePixelRatio;
  let tallest = { high: 0, foot: 0 };
  for (let x = 0; x < width; x += 1) {
    const rows = Array.from({ length: height }, (_, y) => y).filter((y) => is(bar, x, y));
    // The line may cross the bar, so what counts is where the bar begins and ends.
    const high = rows.length > 0 ? rows.at(-1) - rows[0] + 1 : 0;
    if (high > tallest.high) tallest = { high, foot: rows.at(-1) + 1 };
  }
  const rows = Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => is(line, x, y)));
  const many = rows.map((row) => row.filter(Boolean).length);
  const most = Math.max(...many);
  const lines = many.flatMap((count, y) => (count > most / 2 && count > 0 ? [y] : []));
  const middle = lines.length > 0 ? (lines[0] + lines.at(-1) + 1) / 2 : null;
  const row = rows[many.indexOf(most)];
  return {
    bar: tallest.high, line: middle === null ? null : tallest.foot - middle, thick: lines.length,
    covered: most / plot, dashes: row.filter((on, x) => on && !row[x - 1]).length,
  };
});

for (const [step, per] of [['hour', 'hour'], ['day', 'day']]) {
  for (const share of [0.5, 2]) {
    test(`by ${step}, a budget of ${share} times the dearest ${step} is a dashed line at that height`, async () => {
      const spent = await dearest(step);
      await allow({ max_cost_usd: share * spent, per, action: 'warn' });
      const tab = await open(browser);
      const { page } = tab;
      // The budget is known after the costs: the line must come by itself.
      let release;
      const held = new Promise((resolve) => (release = resolve));
      await page.route('**/api/status?kind=agent*', async (route) => { await held; await route.continue(); });
      await page.goto(`${world.url}/costs?by=${step}`);
      await page.getByRole('img', { name: new RegExp(`^Cost by ${step}`) }).waitFor();
      await until('the bars', async () => (await drawn(page)).bar > 10, 60_000);
      assert.equal((await drawn(page)).covered, 0, 'no budget is known yet, so no line is drawn');
      release();
      await page.getByText('dashed red line: the budget').waitFor();
      const seen = await until('the line', async () => { const found = await drawn(page); return found.covered > 0 ? found : null; }, 60_000);
      assert.ok(seen.covered > 0.4 && seen.covered < 0.8 && seen.dashes > 20, `dashed over the whole width: ${JSON.stringify(seen)}`);
      assert.ok(seen.thick <= 3, `a line, and nothing else: ${JSON.stringify(seen)}`);
      assert.ok(Math.abs(seen.line - share * seen.bar) <= 2.5, `${share} times as high as the bar: ${JSON.stringify(seen)}`);
      await tab.fine('costs');
      await tab.close();
    });
  }
}

test('without a budget there is no line', async () => {
  await allow({ max_cost_usd: null });
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/costs?by=hour`);
  await page.getByText('No budget is set for the project').waitFor();
  await until('the bars', async () => (await drawn(page)).bar > 10, 60_000);
  assert.equal((await drawn(page)).covered, 0);
  assert.equal(await page.getByText('dashed red line').count(), 0);
  await tab.fine('no budget');
  await tab.close();
});

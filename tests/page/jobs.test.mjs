// How many clicks an operator's jobs take, counted in the browser; and that ranges and charts lead to the calls.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady, until } from './rig.mjs';

let world;
let browser;
let tab;
let page;
/** Clicks of the mouse, and choices in a list, that the pages have seen since a job began. */
let clicks = 0;
before(async () => {
  const policy = join(tmpdir(), `deadstop-jobs-${process.pid}.toml`);
  writeFileSync(policy, 'preset = "strict"\n[access]\nask = ["delete_*"]\ndeny = ["drop_table"]\n[loop]\nend_at = 9\nblock_at = 8\nsteer_at = 7\n');
  world = await rig({ policy });
  browser = await browse();
  await steady(world, 'spender', 'one', 3);
  for (let turn = 0; turn < 6; turn += 1) await call('runaway', 'night', `c${turn}`, 'get_build', { of: 'main' });
  await call('cleaner', 'one', 'd1', 'drop_table', { table: 'tmp_7' });
  await until('the incident', async () => (await world.api('GET', '/api/incidents?agent=cleaner')).body.items.length === 1);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});
beforeEach(async () => {
  await tab?.close();
  tab = await open(browser, { width: 1440 });
  page = tab.page;
  await page.exposeFunction('counted', () => { clicks += 1; });
  await page.addInitScript(() => {
    // A click on a label is one of the mouse and one of its input: only the first has a position.
    addEventListener('click', (event) => { if (event.isTrusted && event.detail > 0) window.counted(); }, true);
    addEventListener('change', (event) => { if (event.target instanceof HTMLSelectElement) window.counted(); }, true);
  });
});

async function call(agent, session, id, tool, args) {
  const at = `/api/sessions/${agent}/${session}`;
  const asked = (await world.api('POST', `${at}/proposal`, { calls: [{ id, tool, arguments: args }] })).body.calls[0];
  if (asked.allowed) await world.api('POST', `${at}/receipt`, { id, status: 'ok', text: 'still failing', wait: true });
  return asked;
}
const begin = async (path) => {
  await page.goto(world.url + path);
  clicks = 0;
};

test('find a runaway and stop it: two clicks and a reason', async () => {
  await begin('/');
  // It is the first row, because it is the nearest to a limit.
  const row = page.getByRole('region', { name: 'Running sessions' }).locator('tbody tr:not(.space)').first();
  await row.getByText('night').first().waitFor();
  await row.getByRole('button', { name: 'Stop night' }).click();
  await page.keyboard.type('it repeats itself');
  await page.getByRole('dialog').getByRole('button', { name: /^Stop/ }).click();
  await until('it is stopped', async () => (await world.api('GET', '/api/sessions/runaway/night')).body.standing === 'stopped_by_person');
  assert.ok(clicks >= 1 && clicks <= 2, `${clicks} clicks`);
});

test('understand why something was refused: one click', async () => {
  await begin('/');
  await page.getByRole('list', { name: 'Events, the newest first' }).getByRole('link', { name: /cleaner/ }).first().click();
  await page.getByText(/drop_table/).first().waitFor();
  await page.getByRole('heading', { name: 'Evidence' }).waitFor();
  assert.ok(clicks >= 1 && clicks <= 1, `${clicks} clicks`);
});

test('fix a false alarm for good: three clicks and a reason', async () => {
  await begin('/incidents');
  await page.getByRole('row', { name: /cleaner/ }).getByRole('link', { name: 'View details' }).first().click();
  await page.getByRole('button', { name: 'This was a false alarm' }).click();
  const why = page.getByPlaceholder('Why it was a false alarm');
  await why.focus();
  await page.keyboard.type('temporary tables are its own');
  await page.getByRole('button', { name: 'Save the exception' }).click();
  await page.getByText('Saved: in force from the next call').waitFor();
  assert.ok(clicks >= 1 && clicks <= 3, `${clicks} clicks`);
  assert.equal((await call('cleaner', 'two', 'd2', 'drop_table', { table: 'tmp_8' })).allowed, true);
});

test('approve a call: one click and a reason', async () => {
  assert.equal((await call('cleaner', 'three', 'a1', 'delete_asset', { asset: 'x' })).verdict, 'ask');
  await begin('/approvals');
  await page.getByLabel('Why, for delete_asset').focus();
  await page.keyboard.type('ticket 9');
  await page.getByRole('button', { name: 'Approve delete_asset' }).click();
  await page.getByText('No call waits for a person').waitFor();
  assert.ok(clicks >= 1 && clicks <= 1, `${clicks} clicks`);
});

test('what a day cost, agent by agent: one click', async () => {
  await begin('/');
  await page.getByRole('link', { name: 'Costs', exact: true }).click();
  await page.getByRole('heading', { name: /last 24 hours/ }).waitFor();
  const row = page.getByRole('region', { name: 'Costs' }).getByRole('row', { name: /spender/ });
  await row.waitFor();
  const { items } = (await world.api('GET', '/api/costs?by=agent&agent=spender')).body;
  assert.equal(items[0].calls, 3);
  assert.ok(clicks >= 1 && clicks <= 1, `${clicks} clicks`);
});

for (const path of ['/', '/costs', '/requests', '/sessions', '/incidents', '/agents/spender']) {
  test(`a time range on ${path} is in the address, and stays after a reload`, async () => {
    await begin(path);
    const picker = page.getByRole('combobox', { name: 'Time' });
    await picker.selectOption('7d');
    assert.equal(new URL(page.url()).searchParams.get('span'), '7d');
    await page.reload();
    await picker.waitFor();
    assert.equal(await picker.inputValue(), '7d');
    await picker.selectOption('between');
    await page.getByLabel('From', { exact: true }).fill('2026-01-02T03:04');
    await page.getByLabel('From', { exact: true }).blur();
    await until('the moment in the address', async () => new URL(page.url()).searchParams.get('from') === String(await page.evaluate(() => new Date('2026-01-02T03:04').getTime())));
    await page.reload();
    assert.equal(await page.getByLabel('From', { exact: true }).inputValue(), '2026-01-02T03:04');
    await tab.fine(path);
    assert.deepEqual(await tab.barriers(), []);
  });
}

test('a range leaves out what lies outside', async () => {
  await begin('/incidents?state=all');
  await page.getByRole('link', { name: 'View details' }).first().waitFor();
  await page.goto(`${world.url}/incidents?state=all&from=1000&to=2000`);
  await page.getByText('No incident fits these filters.').waitFor();
  await page.goto(`${world.url}/sessions?from=1000&to=2000`);
  await page.getByText('No session fits these filters.').waitFor();
  await page.goto(`${world.url}/requests?from=1000&to=2000`);
  await page.getByText('No request fits these filters.').waitFor();
});

test('a chart leads to the calls behind it, and has as many', async () => {
  await begin('/agents/spender');
  const chart = page.getByRole('img', { name: /^Calls of spender/ });
  await chart.waitFor();
  await page.getByRole('link', { name: 'The calls behind it' }).first().click();
  await page.getByRole('heading', { name: 'Requests' }).waitFor();
  await page.getByText('3 in all').waitFor();
  // A bar leads to its own: the last one has them all.
  await page.goBack();
  const box = await chart.boundingBox();
  for (let x = box.width - 25; x > 60; x -= 8) {
    await page.mouse.move(box.x + x, box.y + box.height / 2);
    if (/ · 3$/.test((await chart.locator('..').locator('figcaption').textContent()).trim())) break;
  }
  await page.mouse.down();
  await page.mouse.up();
  await page.waitForURL(/\/requests\?.*agent=spender/);
  await page.getByText('3 in all').waitFor();
  await tab.fine('chart');
});

test('speed and errors by model and provider', async () => {
  await begin('/costs');
  const speeds = page.getByRole('region', { name: 'Speed and errors' });
  const row = speeds.getByRole('row', { name: /gpt|claude|gemini/ }).first();
  await row.waitFor();
  assert.match(await row.innerText(), /\b3\b[\s\S]*0%[\s\S]*\d (ms|s)/);
  await speeds.getByRole('button', { name: 'By provider' }).click();
  await speeds.getByRole('columnheader', { name: 'Model' }).waitFor({ state: 'hidden' });
  assert.equal(new URL(page.url()).searchParams.get('speed'), 'provider');
  await tab.fine('speed');
});

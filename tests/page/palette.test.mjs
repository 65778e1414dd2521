// The command palette: a verb and a name make an order, which still asks for its reason; and a
// browser that is lost is told so.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady, until } from './rig.mjs';

let world;
let browser;
before(async () => {
  world = await rig();
  browser = await browse();
  await steady(world, 'worker', 'nightly', 1);
  await steady(world, 'writer', 'report', 1);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

const stateOf = async (agent, session) => (await world.api('GET', `/api/sessions/${agent}/${session}`)).body.state;

test('a session is stopped and resumed with the keyboard alone', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(world.url);
  await page.locator('h1').first().waitFor();
  for (const [key, verb, state] of [['/', 'stop', 'killed'], ['Control+k', 'resume', 'running']]) {
    await page.keyboard.press(key);
    const field = page.getByRole('combobox', { name: 'Find anything' });
    await field.fill(`${verb} night`);
    const first = page.locator('#found').getByRole('option').first();
    await first.getByText('nightly').waitFor();
    assert.match(await first.innerText(), new RegExp(`session\\s+${verb} nightly`, "i"));
    assert.deepEqual(await tab.barriers(), []);
    await page.keyboard.press('Enter');
    const dialog = page.locator('dialog[open]');
    await dialog.getByRole('heading', { name: `${verb === 'stop' ? 'Stop' : 'Resume'} session nightly` }).waitFor();
    // Nothing happens before a reason is given.
    assert.notEqual(await stateOf('worker', 'nightly'), state);
    await dialog.getByRole('textbox').first().fill('a test of the palette');
    await dialog.getByRole('button', { name: verb === 'stop' ? /^Stop/ : /^Resume/ }).click();
    await until(`the session is ${state}`, async () => (await stateOf('worker', 'nightly')) === state);
    await page.locator('dialog[open]').waitFor({ state: 'detached' }).catch(() => {});
  }
  assert.equal(await stateOf('writer', 'report'), 'running');
  await tab.fine('palette');
});

test('a verb is completed, and top up goes to its form', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(world.url);
  await page.locator('h1').first().waitFor();
  await page.keyboard.press('/');
  const field = page.getByRole('combobox', { name: 'Find anything' });
  await field.fill('top');
  await page.locator('#found').getByRole('option').first().waitFor();
  await field.fill('top up report');
  await page.locator('#found').getByRole('option').first().getByText('report').waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/sessions/writer/report?do=top-up');
  await page.getByRole('form', { name: 'Top up' }).getByLabel('Dollars').waitFor();
  await page.waitForFunction(() => document.activeElement?.closest('form')?.getAttribute('aria-label') === 'Top up');
  await tab.fine('top up');
});

test('an address that does not exist shows what is wrong to a browser, and JSON to a client', async () => {
  const tab = await open(browser);
  const { page } = tab;
  const answer = await page.goto(`${world.url}/nope`);
  assert.equal(answer.status(), 404);
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await page.getByText('/nope').waitFor();
  assert.deepEqual(await tab.barriers(), []);
  const client = await fetch(`${world.url}/nope`, { headers: { accept: 'application/json' } });
  assert.equal(client.status, 404);
  assert.match(client.headers.get('content-type'), /json/);
  const api = await fetch(`${world.url}/api/nope`);
  assert.match(api.headers.get('content-type'), /problem\+json/);
});

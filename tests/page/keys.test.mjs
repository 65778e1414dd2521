// Keys and roles: the first key closes the door, a viewer sees and is told why it may not.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady } from './rig.mjs';

let world;
let browser;
before(async () => {
  world = await rig();
  browser = await browse();
  await steady(world, 'worker', 'task', 1);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

test('the first key is made on the page, and the page signs in with it', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/settings/keys`);
  await page.getByLabel('Name').fill('the boss');
  await page.getByRole('button', { name: 'Make' }).click();
  // An agent is running: it will need a key, and the page says so before.
  await page.getByText('1 agent will fail without a key: worker').waitFor();
  await page.getByRole('button', { name: 'Press again to make it' }).click();
  const admin = await page.locator('code', { hasText: /^ds_a_/ }).innerText();
  await page.getByText('the boss · admin').first().waitFor();
  world.useKey(admin);
  // A change now needs the login's token; the page sends it.
  await page.getByRole('button', { name: 'I have it' }).click();
  await page.getByLabel('Name').fill('who looks');
  await page.getByLabel('Role').selectOption('viewer');
  await page.getByRole('button', { name: 'Make' }).click();
  const viewer = await page.locator('code', { hasText: /^ds_v_/ }).innerText();
  await tab.fine('keys');

  await page.getByRole('button', { name: 'Sign out' }).first().click();
  await page.getByRole('heading', { name: 'Sign in to Deadstop' }).waitFor();
  await tab.close();
  await looks(viewer);
});

async function looks(viewer) {
  const tab = await open(browser, { expected: [/401/] });
  const { page } = tab;
  await page.goto(`${world.url}/agents/worker/guards`);
  await page.getByRole('heading', { name: 'Sign in to Deadstop' }).waitFor();
  await page.getByLabel('Key').fill('ds_v_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Key').fill(viewer);
  await page.keyboard.press('Enter');
  await page.waitForURL('**/agents/worker/guards');
  await page.getByText('Using project default').waitFor();
  const stop = page.getByRole('button', { name: 'Stop agent' });
  assert.equal(await stop.getAttribute('aria-disabled'), 'true');
  assert.match(await stop.getAttribute('title'), /takes the role operator; yours is viewer/);
  await stop.click({ force: true });
  await page.getByText('This takes the role operator; yours is viewer').first().waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);
  for (const path of ['/', '/alerts', '/audit', '/settings/keys', '/settings/kept', '/settings']) {
    await page.goto(world.url + path);
    await page.locator('h1').waitFor();
    await page.waitForTimeout(200);
  }
  await tab.fine('viewer');
  await tab.close();
}

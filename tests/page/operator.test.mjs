// A server without keys: every browser of the machine looks and stops, one that was signed in by a link
// gives all orders.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady } from './rig.mjs';

let world;
let browser;
before(async () => {
  world = await rig({ trusted: false });
  browser = await browse();
  await steady(world, 'worker', 'task', 1);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

test('hole 01: a browser that is not signed in stops, and loosens nothing', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/agents/worker`);
  await page.getByText('You can look, pause and stop.').waitFor();
  await page.getByRole('button', { name: 'Stop agent' }).click();
  await page.getByRole('dialog').getByRole('textbox').first().fill('enough');
  await page.getByRole('dialog').getByRole('button', { name: /^Stop/ }).click();
  const active = page.getByRole('switch', { name: 'Agent active' });
  await page.getByText('Inactive').first().waitFor();
  assert.equal(await active.getAttribute('aria-disabled'), 'true');
  assert.match(await active.getAttribute('title'), /deadstop sign-in/);
  await tab.fine('not signed in');
  await tab.close();
  const clear = await world.api('POST', '/api/clear', { agent: 'worker' });
  assert.deepEqual([clear.status, clear.body.code], [403, 'operator_required']);
});

test('hole 01: the link signs a browser in, once, and leaves the address', async () => {
  const { stdout } = await world.cli('sign-in');
  const link = stdout.trim();
  const tab = await open(browser, { expected: [/401/] });
  const { page } = tab;
  await page.goto(link);
  await page.waitForURL(`${world.url}/`);
  assert.equal(await page.evaluate(() => location.hash), '');
  await page.goto(`${world.url}/agents/worker`);
  await page.getByRole('switch', { name: 'Agent active' }).click();
  await page.getByRole('dialog').getByRole('textbox').first().fill('fixed');
  await page.getByRole('dialog').getByRole('button').last().click();
  await page.getByText('Active', { exact: true }).first().waitFor();
  assert.equal(await page.getByText('You can look, pause and stop.').count(), 0);
  await page.getByRole('button', { name: 'Sign out' }).first().click();
  await page.getByText('You can look, pause and stop.').waitFor();
  await page.goto('about:blank');
  await page.goto(link);
  await page.getByRole('alert').getByText(/was used or is too old/).waitFor();
  await tab.close();
});

// The request log, and sessions whose name was used again.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { janitor, rig, steady, until } from './rig.mjs';

let world;
let browser;

before(async () => {
  world = await rig();
  browser = await browse();
  const settings = (await world.api('GET', '/api/settings')).body;
  await world.api('PUT', '/api/settings', { ...settings, capture: 'all' });
  await Promise.all([steady(world, 'researcher', 'report', 4), janitor(world, 'janitor', 'cleanup')]);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

test('the request log is filtered, and a row opens its call', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/requests`);
  const rows = page.getByRole('region', { name: 'Requests' }).getByRole('row');
  const names = () => rows.evaluateAll((all) => all.slice(1).map((row) => [...row.querySelectorAll('a')].map((link) => link.textContent)));
  await rows.nth(6).waitFor();
  const all = await names();
  assert.ok(all.some(([, agent]) => agent === 'researcher') && all.some(([, agent]) => agent === 'janitor'), JSON.stringify(all));

  await page.getByLabel('Agent').fill('janitor');
  await page.keyboard.press('Tab');
  await page.waitForURL('**/requests?agent=janitor');
  await page.waitForFunction(() => !document.querySelector('main').innerText.includes('researcher'));
  await page.getByLabel('Verdict').selectOption('kill');
  await page.waitForURL('**verdict=kill**');
  await page.getByLabel('Tool').fill((await world.api('GET', '/api/calls?verdict=kill&agent=janitor')).body.items.find((one) => one.kind === 'tool').name);
  await page.keyboard.press('Tab');
  await until('one row', async () => (await rows.count()) === 2);

  await rows.nth(1).getByRole('link').first().click();
  await page.waitForURL('**call=**');
  const card = page.locator('section', { has: page.getByRole('link', { name: 'Replay the session from here' }) });
  await card.getByText('never ran').waitFor();
  await card.getByRole('link', { name: 'The incident' }).waitFor();
  await tab.fine('a request');
  assert.deepEqual(await tab.barriers(), []);

  // What is kept of a call that ran.
  await page.goto(`${world.url}/requests?agent=researcher&model=gpt-4o&span=24h`);
  await rows.nth(1).getByRole('link').first().click();
  await page.getByLabel('Request', { exact: true }).waitFor();
  await page.getByLabel('Answer', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Close' }).click();
  await page.waitForURL((url) => !url.search.includes('call='));
  await page.getByLabel('Model').fill('no-such-model');
  await page.keyboard.press('Tab');
  await page.getByText('No request fits these filters.').waitFor();
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await rows.nth(6).waitFor();
  await tab.fine('requests');
  await tab.close();
});

test('a session that was reset is found by its number in list, incident, replay and timeline', async () => {
  const old = (await world.api('GET', '/api/sessions?agent=janitor')).body.items[0];
  const incident = await until('the incident', async () => (await world.api('GET', '/api/incidents?agent=janitor')).body.items[0]);
  await world.api('POST', '/api/sessions/janitor/cleanup/reset', { reason: 'again' });
  await world.call('janitor', 'cleanup', [{ role: 'user', content: 'hello' }]);
  await until('the new session', async () => (await world.api('GET', '/api/sessions?agent=janitor')).body.items.length === 2);

  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/sessions?agent=janitor`);
  const row = page.getByRole('row').filter({ hasText: 'Stopped' });
  await row.getByRole('link').first().click();
  await page.waitForURL(`**/sessions/janitor/cleanup?number=${old.number}`);
  await page.getByText('An earlier session of this name').waitFor();
  await page.getByText('■ Stopped here').waitFor();
  await page.getByRole('link', { name: 'Scopes' }).click();
  await page.waitForURL(`**number=${old.number}**view=tree**`);
  assert.equal(await page.getByRole('button', { name: 'Stop', exact: true }).getAttribute('aria-disabled') ?? String(await page.getByRole('button', { name: 'Stop', exact: true }).isDisabled()), 'true');
  await tab.fine('an earlier session');
  assert.deepEqual(await tab.barriers(), []);

  await page.goto(`${world.url}/incidents/${incident.id}`);
  await page.getByRole('link', { name: 'Replay the session' }).click();
  await page.waitForURL(`**/sessions/janitor/cleanup?number=${old.number}`);
  await page.getByText('■ Stopped here').waitFor();
  await page.getByRole('link', { name: 'The current session' }).click();
  await page.waitForURL('**/sessions/janitor/cleanup');
  await page.getByText('Running').first().waitFor();
  await tab.fine('the current session');
  await tab.close();
});

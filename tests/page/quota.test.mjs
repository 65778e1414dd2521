// The windows that a provider reports, on the page of the agent that called it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady, until } from './rig.mjs';

let world;
let browser;
before(async () => {
  const seconds = Math.floor(Date.now() / 1000);
  const headers = {
    'x-codex-primary-used-percent': '93', 'x-codex-primary-reset-at': String(seconds + 7200),
    'x-codex-secondary-used-percent': '12', 'x-codex-secondary-reset-at': String(seconds + 3 * 86_400),
  };
  world = await rig({ says: async () => ({ headers }) });
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

test('each window has its share and the time when it begins anew', async () => {
  await steady(world, 'subscriber', 'one', 1);
  await until('its quota', async () => (await world.api('GET', '/api/agents/subscriber')).body.quotas.length === 2);
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/agents/subscriber`);
  const card = page.getByRole('region', { name: 'Provider quota' });
  await card.waitFor();
  const lines = (await card.getByRole('listitem').allInnerTexts()).map((text) => text.replace(/\s+/g, ' '));
  assert.match(lines[0], /^openai primary 93% used begins anew in (1 h 59 min|2 h)$/);
  assert.match(lines[1], /^openai secondary 12% used begins anew in (2 d 23 h|3 d)$/);
  await tab.fine('quota');
  await tab.close();
});

test('an agent whose provider reports nothing has no such card', async () => {
  await world.api('POST', '/api/sessions', { agent: 'quiet', session: 's' });
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/agents/quiet`);
  await page.getByRole('heading', { name: 'quiet' }).waitFor();
  await page.getByText('First call').waitFor();
  assert.equal(await page.getByText('Provider quota').count(), 0);
  await tab.fine('no quota');
  await tab.close();
});

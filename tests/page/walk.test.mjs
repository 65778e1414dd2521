// Every page, as it is seen: nothing goes wrong, everybody can use it, in light and dark, wide and narrow.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { janitor, parrot, rig, steady, until } from './rig.mjs';
import { NASTY } from './standin.mjs';

let world;
let browser;
let pages;
const odd = NASTY.slice(0, 70);

before(async () => {
  world = await rig();
  browser = await browse();
  const settings = (await world.api('GET', '/api/settings')).body;
  await world.api('PUT', '/api/settings', { ...settings, capture: 'all' });
  await world.api('PUT', '/api/agents/parrot/kill-switch', { enabled: true, window_size: 10, threshold: 5 });
  await world.api('POST', '/api/alerts/targets', { name: 'On call', agent: null, events: ['kill'], active: true, target: { type: 'webhook', url: 'http://127.0.0.1:9/hook' } });
  await Promise.all([
    steady(world, 'researcher', 'report', 5), janitor(world, 'janitor', 'cleanup'), parrot(world, 'parrot', 'orders'),
    world.call(odd, 'odd <b>name</b>', [{ role: 'user', content: NASTY }], { model: 'html' }),
  ]);
  const incidents = await until('both incidents', async () => {
    const { items } = (await world.api('GET', '/api/incidents')).body;
    return items.length >= 2 ? items : null;
  });
  const scored = incidents.find((one) => one.score !== null);
  const other = incidents.find((one) => one.score === null);
  assert.ok(scored && other);
  const strange = (await until('the odd session', async () => (await world.api('GET', '/api/sessions')).body.items.find((one) => one.name.startsWith('odd'))));
  pages = {
    now: '/', agents: '/agents', agent: '/agents/parrot', guards: '/agents/researcher/guards', 'kill switch': '/agents/parrot/kill-switch',
    'its sessions': '/agents/researcher/sessions', 'its alerts': '/agents/researcher/alerts', sessions: '/sessions', session: '/sessions/janitor/cleanup',
    tree: '/sessions/janitor/cleanup?view=tree', conversation: `/sessions/${encodeURIComponent(strange.agent)}/${encodeURIComponent(strange.name)}?view=conversation`,
    requests: '/requests', incidents: '/incidents', 'groups of incidents': '/incidents?view=groups', incident: `/incidents/${scored.id}`, 'another incident': `/incidents/${other.id}`,
    costs: '/costs', 'costs by model': '/costs?by=model', alerts: '/alerts', audit: '/audit', settings: '/settings', kept: '/settings/kept', keys: '/settings/keys', prices: '/settings/prices', 'costs by hour': '/costs?by=hour',
    'sign-in': '/sign-in', nowhere: '/settings/a/b',
  };
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']]) {
  test(`every page at ${width} px, ${scheme}`, { timeout: 600_000 }, async () => {
    const tab = await open(browser, { width, scheme });
    const { page } = tab;
    const found = [];
    for (const [name, path] of Object.entries(pages)) {
      await page.goto(world.url + path);
      await page.locator('h1').first().waitFor();
      await page.waitForFunction(() => !document.body.innerText.includes('Reading…'));
      await page.waitForTimeout(150);
      found.push(...[...(await tab.wrong()), ...(await tab.barriers())].map((one) => `${name}: ${one}`));
      const spill = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (spill > 0) found.push(`${name}: the page is ${spill} px wider than the window`);
      if (await page.evaluate(() => window.pwned)) found.push(`${name}: something ran`);
    }
    assert.deepEqual(found, []);
    await tab.close();
  });
}

test('the page is served as it should be', async () => {
  const index = await fetch(`${world.url}/agents/anything`);
  assert.equal(index.status, 200);
  assert.equal(index.headers.get('cache-control'), 'no-cache');
  const policy = index.headers.get('content-security-policy');
  assert.ok(policy.includes("default-src 'none'") && !policy.includes('unsafe'), policy);
  assert.equal(index.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(index.headers.get('referrer-policy'), 'no-referrer');
  const script = (await index.text()).match(/\/assets\/[^"]+\.js/)[0];
  const asset = await fetch(world.url + script);
  assert.ok(asset.headers.get('cache-control').includes('immutable'));
  assert.equal(asset.headers.get('content-encoding'), 'gzip');
  const size = Number(asset.headers.get('content-length'));
  assert.ok(size > 0 && size < 150_000, `the script is ${size} bytes`);
  assert.equal((await fetch(`${world.url}/assets/gone.js`)).status, 404);
});

test('the first paint is quick', async () => {
  const { page, close } = await open(browser);
  // The best of some: what else the machine does meanwhile is not the page's.
  let best = Infinity;
  for (let round = 0; round < 10 && best >= 1000; round += 1) {
    await page.goto(world.url);
    await page.locator('h1').waitFor();
    best = Math.min(best, await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
  }
  assert.ok(best < 1000, `first paint after ${best} ms`);
  await close();
});

test('names and texts from agents are text', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(world.url + pages.conversation);
  await page.locator('pre', { hasText: 'onerror="window.pwned=1"' }).first().waitFor();
  const text = await page.locator('main').innerText();
  assert.ok(text.includes('⟨U+202E⟩'), 'what turns text around is written out');
  assert.equal(await page.locator('main img').count(), 0);
  assert.equal(await page.locator('h1 b').count(), 0);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await tab.fine('conversation');
  await tab.close();
});

test('an incident reads from the list to its evidence', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/incidents`);
  // The columns of the kill switch's page.
  for (const column of ['Time', 'Agent', 'Provider', 'Score/Threshold', 'Window', 'Signals']) await page.getByRole('columnheader', { name: column, exact: true }).waitFor();
  await page.getByRole('button', { name: 'Grouped' }).click();
  await page.getByRole('link', { name: /^Similarity/ }).click();
  await page.getByRole('cell', { name: /^\d+\.\d\/5$/ }).waitFor();
  await page.getByText('P=2').or(page.getByText('P=3')).first().waitFor();
  await page.getByRole('link', { name: 'View details' }).click();
  await page.getByRole('img', { name: /Loop score: \d+\.\d \/ 5\.0/ }).waitFor();
  for (const signal of ['Similar prompts', 'Similar responses', 'Repeated tool calls', 'Total']) await page.getByRole('cell', { name: signal }).waitFor();
  const evidence = page.locator('details', { hasText: 'Call 1 of' });
  await evidence.locator('summary').click();
  await evidence.getByText(/\d+ characters/).first().waitFor();
  await evidence.locator('pre').first().waitFor();
  // The two calls that are most alike differ in their order's number.
  await page.locator('mark.removed', { hasText: /10\d\d/ }).first().waitFor();
  await tab.fine('incident');
  await tab.close();
});

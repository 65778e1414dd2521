// What the page says twice it says the same way, and long names hide nothing.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, until } from './rig.mjs';

const LONG = `run-${'0123456789abcdef'.repeat(7)}-end`;
let world;
let browser;
before(async () => {
  world = await rig({ policy: 'strict' });
  browser = await browse();
  for (let turn = 0; turn < 12; turn += 1) await look('looper', 'stuck', turn);
  await look(`${'agent-with-a-long-name-'.repeat(5)}x`, LONG, 0);
  await until('the stop', async () => (await world.api('GET', '/api/sessions/looper/stuck')).body.state === 'killed');
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

/** A tool call that brings the same as always. */
async function look(agent, session, turn) {
  const at = `/api/sessions/${agent}/${session}`;
  const asked = await world.api('POST', `${at}/proposal`, { calls: [{ id: `c${turn}`, tool: 'get_build', arguments: { of: 'main' } }] });
  if (asked.body.calls?.[0]?.allowed) await world.api('POST', `${at}/receipt`, { id: `c${turn}`, status: 'ok', text: 'still failing', wait: true });
}

test('the gauge beside a stop has the numbers of its sentence, on the incident and on the session', async () => {
  const tab = await open(browser);
  const { page } = tab;
  const { items } = (await world.api('GET', '/api/incidents?agent=looper')).body;
  const stop = items.find((one) => one.verdict === 'kill');
  const [, times, limit] = stop.explain.match(/(\d+) times \(limit (\d+)\)/);
  assert.equal(times, limit);
  await page.goto(`${world.url}/incidents/${stop.id}`);
  const card = page.locator('section', { has: page.getByRole('heading', { name: 'Measured against the limit' }) });
  assert.match(await card.locator('.numbers').innerText(), new RegExp(`^${times} where the limit is ${limit}$`));
  await page.getByRole('link', { name: 'Replay the session' }).click();
  const gauge = page.getByRole('list', { name: 'Guards of the session' }).getByText(/repeated calls/).first();
  await gauge.waitFor();
  assert.match(await gauge.innerText(), new RegExp(`repeated calls ${times} of ${limit}`));
  await page.getByText(`${times} times (limit ${limit})`).first().waitFor();
  await tab.fine('gauge');
  await tab.close();
});

for (const [width, path, columns] of [
  [1440, '/sessions', ['Cost', 'Last used']],
  [1280, '/sessions', ['Cost', 'Last used']],
  [1440, '/', ['Cost']],
  [1600, '/', ['Cost', 'Last used']],
]) {
  test(`a long session id leaves ${columns.join(' and ')} in sight on ${path} at ${width} px`, async () => {
    const tab = await open(browser, { width });
    const { page } = tab;
    await page.goto(world.url + path);
    const link = page.getByRole('link', { name: /^run-0123.*-end$/ }).first();
    await link.waitFor();
    const box = await page.getByRole('region', { name: /sessions/i }).boundingBox();
    for (const column of columns) {
      const head = await page.getByRole('columnheader', { name: column }).boundingBox();
      assert.ok(head.x >= box.x && head.x + head.width <= box.x + box.width + 1, `${column}: ${JSON.stringify({ head, box })}`);
    }
    assert.equal(await link.locator('bdi').getAttribute('title'), LONG);
    const copied = await link.locator('bdi').evaluate((element) => {
      const data = new DataTransfer();
      element.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, bubbles: true, cancelable: true }));
      return data.getData('text/plain');
    });
    assert.equal(copied, LONG);
    await tab.fine(path);
    await tab.close();
  });
}

test('sessions are listed by how they stand', async () => {
  const tab = await open(browser);
  const { page } = tab;
  await page.goto(`${world.url}/sessions`);
  await page.getByRole('combobox', { name: 'State' }).selectOption('stopped_by_guard');
  await page.getByRole('link', { name: 'stuck' }).waitFor();
  await page.getByRole('link', { name: /^run-0123/ }).waitFor({ state: 'hidden' });
  await page.getByRole('combobox', { name: 'State' }).selectOption('running');
  await page.getByRole('link', { name: /^run-0123/ }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'stuck' }).count(), 0);
  // The address of before this word was there.
  await page.goto(`${world.url}/sessions?state=killed`);
  await page.getByRole('link', { name: 'stuck' }).waitFor();
  await tab.fine('states');
  await tab.close();
});

test('what is over is not among what runs, and what is refused again and again is shown once', async () => {
  await look('claude-code', 'done', 0);
  await world.api('POST', '/api/sessions', { agent: 'claude-code', session: 'done', done: true });
  // Five failures open the circuit; what follows is refused.
  for (let turn = 0; turn < 9; turn += 1) await world.call('importer', 'nightly', [{ role: 'user', content: `part ${turn}` }], { model: 'broken' });
  await until('the refusals', async () => (await world.api('GET', '/api/incidents?agent=importer')).body.items[0]?.calls >= 4);
  const tab = await open(browser, { expected: [/failed to load/i] });
  const { page } = tab;
  await page.goto(world.url);
  const running = page.getByRole('region', { name: 'Running sessions' });
  await running.getByRole('link', { name: 'nightly' }).waitFor();
  assert.equal(await running.getByRole('link', { name: 'done' }).count(), 0);
  const happened = page.getByRole('list', { name: 'Events, the newest first' });
  await happened.getByRole('link', { name: 'importer / nightly' }).first().waitFor();
  assert.equal(await happened.getByRole('link', { name: 'importer / nightly' }).count(), 1);
  // Calls that failed are not calls that were the same.
  await page.goto(`${world.url}/sessions/importer/nightly`);
  await page.getByText(/failed 5 times in a row/).first().waitFor();
  assert.equal(await page.getByRole('heading', { name: 'What counted as the same' }).count(), 0);
  await page.goto(`${world.url}/sessions/looper/stuck`);
  await page.getByRole('heading', { name: 'What counted as the same' }).waitFor();
  await tab.close();
});

test('an outage of a provider is one incident, and what it holds back says so', async () => {
  const user = (text) => [{ role: 'user', content: text }];
  for (const session of ['newsletter', 'welcome']) for (let turn = 0; turn < 9; turn += 1) await world.call('mailer', session, user(`Mail ${turn} of ${session}`), { model: 'broken' });
  const tab = await open(browser, { width: 1440 });
  const { page } = tab;
  await page.goto(`${world.url}/incidents?agent=mailer`);
  const rows = page.getByRole('region', { name: 'Incidents' }).locator('tbody tr').filter({ has: page.getByRole('link', { name: 'View details' }) });
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
  const { items: [incident] } = (await world.api('GET', '/api/incidents?agent=mailer')).body;
  assert.ok(incident.calls > 1, JSON.stringify(incident));
  await rows.getByText(`${incident.calls} calls, last`).waitFor();
  await rows.getByRole('link', { name: 'View details' }).click();
  await page.locator('.facts').getByText('Last seen').waitFor();
  for (const path of ['/', '/sessions?agent=mailer', '/agents', '/agents/mailer', '/sessions/mailer/newsletter']) {
    // What a try in between has shown is shown for a minute.
    await page.goto(world.url + path);
    await page.getByText(/^openai fails$/).or(page.locator('.badge', { hasText: 'openai fails' })).first().waitFor();
  }
  await tab.fine('an outage');
  await tab.close();
});

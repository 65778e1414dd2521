// What people do about incidents, on the page: states, groups, several at once, with keys alone.
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, until } from './rig.mjs';

let world;
let browser;
let tab;
let page;
before(async () => {
  world = await rig({ policy: 'strict' });
  browser = await browse();
  const kept = (await world.api('GET', '/api/policies/default')).body.document;
  const policy = { ...kept, access: { ...kept.access, deny: ['delete_*', 'drop_*'] } };
  const put = await world.api('PUT', '/api/policies/default', policy, { 'if-match': '*' });
  assert.equal(put.status, 200, JSON.stringify(put.body));
  for (const session of ['one', 'two', 'three']) await refuse('cleaner', session, 'delete_user');
  await refuse('cleaner', 'one', 'drop_table');
  await refuse('other', 'one', 'delete_user');
  await until('the incidents', async () => (await world.api('GET', '/api/incidents')).body.items.length === 5);
});
after(async () => {
  await browser?.close();
  await world?.stop();
});
beforeEach(async () => {
  await tab?.close();
  tab = await open(browser, { width: 1440 });
  page = tab.page;
});

let calls = 0;
async function refuse(agent, session, tool) {
  calls += 1;
  const asked = await world.api('POST', `/api/sessions/${agent}/${session}/proposal`, { calls: [{ id: `c${calls}`, tool, arguments: {} }] });
  assert.equal(asked.body.calls[0].allowed, false, JSON.stringify(asked.body));
}
const list = async (query) => (await world.api('GET', `/api/incidents?${query}`)).body.items;
const rows = () => page.locator('tbody tr:not(.space)');

test('groups say what, since when and how often, and one is resolved at once', async () => {
  await page.goto(`${world.url}/incidents?view=groups`);
  const group = page.getByRole('row', { name: /Access: delete_user.*cleaner/ });
  await group.waitFor();
  assert.match(await group.getByRole('img').getAttribute('aria-label'), /3 incidents in 7 d/);
  await group.getByRole('checkbox').check();
  await page.getByText('1 selected').waitFor();
  await page.getByRole('button', { name: 'Resolve', exact: true }).click();
  await group.waitFor({ state: 'hidden' });
  assert.equal((await list('state=resolved')).length, 3);
  // It happens again, and is there again.
  await refuse('cleaner', 'four', 'delete_user');
  await page.goto(`${world.url}/incidents?view=groups&state=all`);
  await group.getByText('again').waitFor();
  await group.getByText('(1 open)').waitFor();
  assert.deepEqual(await tab.barriers(), []);
  await tab.fine('groups');
});

test('with keys alone: move, select, acknowledge, resolve, mute', async () => {
  await page.goto(`${world.url}/incidents`);
  await until('three rows', async () => (await rows().count()) === 3);
  const before = await list('state=open');
  assert.equal(before.length, 3);
  await page.keyboard.press('j');
  await page.keyboard.press('a');
  await page.locator('tbody').getByText(/Acknowledged/).waitFor();
  await until('it is acknowledged', async () => (await list('state=acknowledged')).map((one) => one.id).join() === before[0].id);
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.getByText('2 selected').waitFor();
  await page.keyboard.press('e');
  await until('both are resolved', async () => (await rows().count()) === 1);
  const resolved = (await list('state=resolved')).map((one) => one.id);
  for (const one of before.slice(1)) assert.ok(resolved.includes(one.id));
  await page.keyboard.press('j');
  await page.keyboard.press('m');
  await page.getByText('No unresolved incidents.').waitFor();
  assert.equal((await list('state=muted')).length, 1);
  await page.getByRole('combobox', { name: 'State' }).selectOption('muted');
  await until('the muted one', async () => (await rows().count()) === 1);
  await page.getByRole('checkbox', { name: 'Select all' }).check();
  await page.getByRole('button', { name: 'Unmute' }).click();
  await page.getByText('Nothing is muted.').waitFor();
  assert.deepEqual(await tab.barriers(), []);
  await tab.fine('keys');
});

test('an incident has its state, its person and its buttons', async () => {
  const [one] = await list('agent=other&state=resolved');
  await page.goto(`${world.url}/incidents/${one.id}`);
  await page.getByRole('heading', { name: 'Resolved', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Reopen' }).click();
  await page.getByRole('heading', { name: 'Not acknowledged yet' }).waitFor();
  await page.getByLabel('Note').fill('I look after it');
  await page.getByRole('button', { name: 'Assign to me' }).click();
  await page.getByText('Assigned to').waitFor();
  await page.getByText('I look after it').waitFor();
  await page.getByRole('combobox', { name: 'Mute' }).selectOption({ label: 'Mute 1 hour' });
  await page.getByRole('heading', { name: 'Muted', exact: true }).waitFor();
  await page.getByText(/No alerts until/).waitFor();
  const audit = (await world.api('GET', '/api/audit?limit=100')).body.items.map((entry) => entry.action);
  for (const action of ['resolve', 'reopen', 'assign', 'mute', 'unmute', 'acknowledge']) assert.ok(audit.includes(`incident.${action}`), action);
  assert.deepEqual(await tab.barriers(), []);
  await tab.fine('incident');
});

test('a false alarm: the exception is proposed, tried and saved in three clicks', async () => {
  const look = async (session, most) => {
    let passed = 0;
    for (let turn = 0; turn < most; turn += 1) {
      const at = `/api/sessions/poller/${session}`;
      const asked = await world.api('POST', `${at}/proposal`, { calls: [{ id: `p${turn}`, tool: 'get_build', arguments: {} }] });
      if (asked.body.calls?.[0]?.allowed) {
        passed += 1;
        await world.api('POST', `${at}/receipt`, { id: `p${turn}`, status: 'ok', text: 'still running', wait: true });
      }
    }
    return passed;
  };
  const before = await look('first', 12);
  const [stop] = await list('agent=poller');
  await page.goto(`${world.url}/incidents/${stop.id}`);
  await page.getByRole('button', { name: 'This was a false alarm' }).click();
  await page.getByText('this session would have gone on').first().waitFor();
  await page.getByText('loop.tools.get_build.end_at').first().waitFor();
  assert.deepEqual(await tab.barriers(), []);
  await page.getByLabel('Why').fill('it waits for the build');
  await page.getByRole('button', { name: 'Save the exception' }).click();
  await page.getByRole('heading', { name: 'Resolved', exact: true }).waitFor();
  await page.getByText('it waits for the build').waitFor();
  assert.equal((await list('agent=poller&state=resolved'))[0].resolved.how, 'false_alarm');
  const versions = (await world.api('GET', '/api/policies/agents/poller/versions')).body.items;
  assert.match(versions[0].note, /it waits for the build/);
  assert.ok((await look('second', 12)) > before, 'the tool may repeat more often now');
  await tab.fine('false alarm');
});

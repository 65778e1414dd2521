// A call that waits for a person: seen on every page, decided with a reason, by mouse and by keys alone; and a
// batch that a person grants.
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
before(async () => {
  const policy = join(tmpdir(), `deadstop-asks-${process.pid}.toml`);
  writeFileSync(policy, 'preset = "strict"\n[access]\nask = ["delete_*"]\n');
  world = await rig({ policy });
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await world?.stop();
});
beforeEach(async () => {
  await tab?.close();
  tab = await open(browser);
  page = tab.page;
});

/** A tool call that an agent would make; what was decided about it. */
async function propose(session, id, target) {
  const body = { calls: [{ id, tool: 'delete_asset', arguments: { asset_id: target } }] };
  const answer = await world.api('POST', `/api/sessions/cleaner/${session}/proposal`, body);
  return answer.body.calls[0];
}
const badge = () => page.getByLabel('1 call waiting');

test('a call that waits appears by itself, and goes on when it is approved', async () => {
  await page.goto(`${world.url}/approvals`);
  await page.getByText('No call waits for a person').waitFor();
  const asked = await propose('s1', 't1', 'fact_sales');
  assert.equal(asked.verdict, 'ask');
  await badge().waitFor();
  const card = page.getByRole('article', { name: 'delete_asset' });
  await card.getByText('waits for a person: delete_asset needs approval').waitFor();
  await card.getByText('fact_sales').first().waitFor();
  await tab.fine('approvals');

  await card.getByRole('button', { name: 'Approve delete_asset' }).click();
  await card.getByText('Say why').waitFor();
  await card.getByLabel('Why, for delete_asset').fill('ticket 7');
  await card.getByRole('button', { name: 'Approve delete_asset' }).click();
  await page.getByText('No call waits for a person').waitFor();
  assert.equal(await badge().count(), 0);
  assert.equal((await propose('s1', 't1', 'fact_sales')).allowed, true);
  const audit = await world.api('GET', '/api/audit?limit=10');
  const entry = audit.body.items.find((one) => one.action === 'call.approve');
  assert.equal(entry.reason, 'ticket 7');
});

test('with keys alone it is found, read and denied', async () => {
  await page.goto(world.url);
  const asked = await propose('s2', 't1', 'fact_orders');
  await badge().waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('p');
  const why = page.getByLabel('Why, for delete_asset');
  await why.waitFor();
  await why.focus();
  await page.keyboard.type('not that one');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByText('No call waits for a person').waitFor();
  const became = await world.api('GET', `/api/approvals/${asked.approval}`);
  assert.deepEqual([became.body.state, became.body.decided_why], ['denied', 'not that one']);
});

test('who decides elsewhere is seen here, and so is a session that is stopped', async () => {
  await page.goto(`${world.url}/approvals`);
  const asked = await propose('s3', 't1', 'a');
  await badge().waitFor();
  await world.cli('approvals', 'deny', asked.approval, '--reason', 'from the terminal');
  await page.getByText('No call waits for a person').waitFor();
  await propose('s3', 't2', 'b');
  await badge().waitFor();
  await world.api('POST', '/api/kill', { agent: 'cleaner', session: 's3', reason: 'enough' });
  await page.getByText('No call waits for a person').waitFor();
});

test('a batch is granted on the page of an agent and of a session, and taken back', async () => {
  await steady(world, 'sweeper', 'night', 1);
  await until('the session', async () => (await world.api('GET', '/api/sessions/sweeper/night')).status === 200);
  for (const path of ['agents/sweeper', 'sessions/sweeper/night']) {
    await page.goto(`${world.url}/${path}`);
    const grants = page.getByRole('region', { name: 'Grants' });
    await grants.getByLabel('Deletions').fill('20');
    await grants.getByLabel('Only targets').fill('tmp_*');
    await grants.getByRole('button', { name: 'Grant', exact: true }).click();
    await grants.getByText('Say why').waitFor();
    await grants.getByLabel('Why').fill('the old tables');
    await grants.getByRole('button', { name: 'Grant', exact: true }).click();
    await grants.getByText('20 of 20').waitFor();
    await grants.getByText('the old tables').waitFor();
    await tab.fine(`grants on ${path}`);
    await grants.getByRole('button', { name: 'Take the grant of 20 back' }).click();
    await grants.getByText('20 of 20').waitFor({ state: 'hidden' });
  }
  const audit = await world.api('GET', '/api/audit?limit=20');
  const actions = audit.body.items.map((one) => one.action);
  assert.ok(actions.includes('grant.give') && actions.includes('grant.revoke'), actions.join());
});

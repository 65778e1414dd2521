// What a person does at three in the morning: see it, stop it, understand it, let it run again. With a mouse,
// with keys alone, from a phone; and what the page did, the API and the terminal agree with.
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { janitor, parrot, rig, steady, until } from './rig.mjs';

let world;
let browser;
let tab;
let page;
before(async () => {
  world = await rig();
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

const say = [{ role: 'user', content: 'tell me everything there is' }];
const dialog = () => page.getByRole('dialog');

/** A call whose answer streams until it is cut off; tells how it ended. */
async function streaming(agent, session) {
  const response = await world.call(agent, session, say, { body: { stream: true } });
  assert.equal(response.status, 200);
  let text = '';
  const ended = (async () => {
    for await (const part of response.body) text += Buffer.from(part).toString();
    return text;
  })();
  await until('the stream', async () => text.includes('data:'));
  return ended;
}

test('with no data the page teaches, and the first call appears by itself', async () => {
  await page.goto(world.url);
  await page.getByText('Waiting for the first call').waitFor();
  await page.getByText(`export OPENAI_BASE_URL=${world.url}/openai/v1`).waitFor();
  await steady(world, 'first', 'hello', 1);
  await page.getByRole('link', { name: 'hello' }).waitFor();
  await tab.fine('first call');
});

test('a session is stopped from the page, its stream ends, and everybody agrees', async () => {
  const ended = streaming('runner', 'long');
  await page.goto(world.url);
  await page.getByRole('button', { name: 'Stop long' }).click();
  await dialog().getByRole('button', { name: 'Stop', exact: true }).click({ force: true });
  await dialog().getByText('Say why').waitFor();
  await dialog().getByLabel('Why').fill('it has said enough');
  await dialog().getByRole('button', { name: 'Stop', exact: true }).click();
  await dialog().waitFor({ state: 'hidden' });
  const text = await ended;
  assert.ok(!text.includes('[DONE]'), 'the stream was cut, not finished');
  await page.getByRole('link', { name: 'long' }).waitFor({ state: 'hidden' }).catch(() => {});
  const session = (await world.api('GET', '/api/sessions/runner/long')).body;
  assert.equal(session.state, 'killed');
  assert.match(session.why, /it has said enough/);
  const { stdout } = await world.cli('status', '--server', world.url).catch(() => world.cli('status', '--url', world.url));
  assert.match(stdout, /long/);
  const { items } = (await world.api('GET', '/api/audit')).body;
  assert.ok(items.some((entry) => entry.action.includes('kill') && entry.reason === 'it has said enough'));
  const refused = await world.call('runner', 'long', say);
  assert.equal(refused.status, 403);
  await tab.fine('stop');
});

test('an agent is removed from the page, and its next call lists it again', async () => {
  await steady(world, 'typo', 'once', 1);
  await steady(world, 'keeper', 'once', 1);
  await page.goto(`${world.url}/agents/typo`);
  await page.getByRole('button', { name: 'Remove' }).click();
  await dialog().getByText('Its calls, sessions, incidents and audit entries stay').waitFor();
  await dialog().getByLabel('Why').fill('it was a typo');
  await dialog().getByRole('button', { name: 'Remove' }).click();
  await dialog().waitFor({ state: 'hidden' });
  await page.waitForURL(`${world.url}/agents`);
  await page.getByRole('link', { name: 'keeper' }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'typo' }).count(), 0);
  const { items } = (await world.api('GET', '/api/audit')).body;
  assert.ok(items.some((entry) => entry.action === 'agent.remove' && entry.reason === 'it was a typo'));
  await page.goto(`${world.url}/agents/typo`);
  await page.getByText('An operator removed this agent').waitFor();
  await steady(world, 'typo', 'twice', 1);
  await until('the list', async () => (await world.api('GET', '/api/agents')).body.items.some((agent) => agent.name === 'typo'), 20_000);
  await page.goto(`${world.url}/agents`);
  await page.getByRole('link', { name: 'typo' }).waitFor();
  await tab.fine('remove');
});

test('pause holds the next call, resume lets it go on', async () => {
  await steady(world, 'waiter', 'held', 1);
  await page.goto(`${world.url}/sessions/waiter/held`);
  await page.getByRole('button', { name: 'Pause' }).click();
  await dialog().getByLabel('Why').fill('let me look');
  await dialog().getByRole('button', { name: 'Pause' }).click();
  await page.getByText('let me look').waitFor();
  let done = false;
  const next = steady(world, 'waiter', 'held', 1).then(() => (done = true));
  await page.waitForTimeout(700);
  assert.equal(done, false, 'the call is held');
  await page.getByRole('button', { name: 'Resume' }).click();
  await dialog().getByLabel('Why').fill('fine');
  await dialog().getByRole('button', { name: 'Resume' }).click();
  await next;
  await tab.fine('pause');
});

test('an agent that the kill switch ended is read about and resumed', async () => {
  await page.goto(`${world.url}/agents/first/kill-switch`);
  await page.getByRole('switch', { name: 'Kill Switch enabled' }).click();
  await page.getByRole('button', { name: /Tight budget control/ }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved: in force from the next call').waitFor();
  assert.deepEqual((await world.api('GET', '/api/agents/first/kill-switch')).body, { enabled: true, window_size: 10, threshold: 5 });
  await parrot(world, 'first', 'again-and-again');
  await page.goto(`${world.url}/agents`);
  await page.getByText('Deactivated by Kill Switch').click();
  await page.goto(`${world.url}/incidents?agent=first`);
  await page.getByRole('link', { name: 'View details' }).first().click();
  await page.getByRole('button', { name: 'Acknowledge' }).click();
  await page.getByRole('heading', { name: 'Acknowledged', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Resume agent' }).click();
  await dialog().getByLabel('Why').fill('the prompt was wrong');
  await dialog().getByRole('button', { name: 'Resume' }).click();
  await dialog().waitFor({ state: 'hidden' });
  assert.equal((await world.api('GET', '/api/agents/first')).body.active, true);
  assert.equal(await steady(world, 'first', 'anew', 1), null, 'its next call runs');
  await tab.fine('reactivate');
});

test('guards: edited, banner changed, versions kept, reset', async () => {
  await page.goto(`${world.url}/agents/first/guards`);
  await page.getByText('Using project default').waitFor();
  const card = page.getByRole('region', { name: 'Loop detection' });
  await card.getByLabel('Repeats in a row').fill('0');
  await page.getByRole('button', { name: 'Save config' }).click();
  await page.getByRole('alert').first().waitFor();
  // Tried on what the agent did before: it made more model calls than that.
  const steps = page.getByRole('region', { name: 'Steps' });
  await steps.getByLabel('Model calls').fill('1');
  await card.getByLabel('Repeats in a row').fill('7');
  await page.getByRole('button', { name: 'Backtest' }).click();
  await page.getByText(/It would have stopped [1-9]/).waitFor();
  await page.getByRole('link', { name: 'again-and-again' }).waitFor();
  await steps.getByLabel('Model calls').fill('');
  await page.getByText('1 change not saved yet').waitFor();
  await page.getByPlaceholder('Why (kept with the version)').fill('it retries on purpose');
  await page.getByRole('button', { name: 'Save config' }).click();
  await page.getByText('Agent-specific config').waitFor();
  assert.equal((await world.api('GET', '/api/agents/first/prevention-config')).body.loop_detection.threshold, 7);
  await page.getByText('it retries on purpose').waitFor();
  await page.getByRole('button', { name: 'Reset to project default' }).click();
  await page.getByText('Using project default').waitFor();
  assert.equal((await world.api('GET', '/api/agents/first/prevention-config')).body.is_agent_override, false);
  // What the server refuses is said by the browser as well.
  assert.ok((await tab.wrong()).every((text) => /422/.test(text)));
});

test('replay steps through calls, and the address keeps the place', async () => {
  await janitor(world, 'janitor', 'cleanup');
  await page.goto(`${world.url}/sessions/janitor/cleanup`);
  await page.getByText('Stopped here').waitFor();
  const head = page.getByRole('slider', { name: 'Playhead' });
  const last = Number(await head.inputValue());
  assert.ok(last >= 3);
  await page.getByRole('heading', { level: 1 }).focus();
  await page.keyboard.press('k');
  await page.keyboard.press('k');
  assert.equal(Number(await head.inputValue()), last - 2);
  await page.reload();
  await page.waitForFunction((wanted) => Number(document.querySelector('input[type=range]')?.value) === wanted, last - 2);
  await page.getByRole('button', { name: 'Go to the stop' }).click();
  assert.equal(Number(await head.inputValue()), last);
  // What the guards held then, with the call that was refused: the sentence says three of three, too.
  const held = (count) => page.getByRole('list', { name: 'Guards of the session' }).getByText(`destructive calls ${count} of 3`);
  await held(3).waitFor();
  await head.fill('1');
  await held(1).waitFor();
  await head.fill('0');
  await held(0).waitFor();
  // Three deletions of three things are not the same call.
  assert.equal(await page.getByText('What counted as the same').count(), 0);
  await tab.fine('replay');
});

test('a model without a price is led to the form, and the next call is charged by it', async () => {
  await steady(world, 'first', 'priced', 1, 'house-model-9');
  await until('its costs', async () => (await world.api('GET', '/api/costs?by=model')).body.items.some((one) => one.of === 'house-model-9'));
  await page.goto(`${world.url}/costs?by=model`);
  await page.getByRole('row', { name: /house-model-9/ }).getByRole('link', { name: /priced by fallback/ }).click();
  assert.equal(await page.getByLabel('Model', { exact: true }).inputValue(), 'house-model-9');
  await page.getByRole('button', { name: 'Save price' }).click();
  await page.getByText('Write what a million tokens').waitFor();
  await page.getByLabel('Input', { exact: true }).fill('1.5');
  await page.getByLabel('Output', { exact: true }).fill('6');
  await page.getByRole('button', { name: 'Save price' }).click();
  const row = page.getByRole('row', { name: /house-model-9/ });
  await row.getByText('your price').waitFor();
  assert.equal((await world.api('GET', '/api/prices/house-model-9')).body.input_usd, 1.5);
  await row.getByRole('button', { name: /Reset the price/ }).click();
  await row.getByText('unknown').waitFor();
  await page.goto(`${world.url}/costs?by=hour`);
  await page.getByRole('img', { name: /Cost by hour/ }).waitFor();
  await page.getByRole('cell', { name: /:00$/ }).first().waitFor();
  await tab.fine('prices');
});

test('keys alone: find, go, read help, stop', async () => {
  await page.goto(world.url);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await page.getByRole('combobox', { name: 'Find anything' }).waitFor();
  await page.keyboard.type('waiter');
  await page.getByRole('option', { name: /Agent waiter/ }).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/agents/waiter');
  await page.keyboard.press('g');
  await page.keyboard.press('i');
  await page.waitForURL('**/incidents');
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Find anything' }).waitFor();
  await page.keyboard.press('Escape');
  await page.goto(`${world.url}/agents/waiter`);
  const button = page.getByRole('button', { name: 'Stop agent' });
  await button.waitFor();
  for (let tries = 0; tries < 60 && !(await button.evaluate((element) => element === document.activeElement)); tries += 1) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.keyboard.type('by keys alone');
  await page.keyboard.press('Enter');
  await until('the stop', async () => (await world.api('GET', '/api/agents/waiter')).body.active === false);
  await tab.fine('keys');
});

test('from a phone, the big red button: typed out, with a reason, and undone', async () => {
  await tab.close();
  tab = await open(browser, { width: 390, height: 844, scheme: 'dark' });
  page = tab.page;
  const ended = streaming('phone', 'far');
  await page.goto(world.url);
  await page.locator('main').getByRole('button', { name: 'Stop everything' }).click();
  const send = dialog().getByRole('button', { name: 'Stop everything' });
  await dialog().getByLabel('Why').fill('fire');
  await send.click({ force: true });
  await dialog().getByRole('alert').waitFor();
  assert.equal((await world.api('GET', '/api/status')).body.project.state, 'running');
  await dialog().getByLabel(/to confirm/).fill('stop everything');
  await send.click();
  await page.getByText('Everything is stopped.').waitFor();
  assert.ok(!(await ended).includes('[DONE]'));
  assert.equal((await world.call('other', 'new', say)).status, 403);
  await page.getByRole('button', { name: 'Resume everything' }).click();
  await dialog().getByLabel('Why').fill('it is out');
  await dialog().getByRole('button', { name: /Resume everything/ }).click();
  await page.getByText('Everything is stopped.').waitFor({ state: 'hidden' });
  assert.equal((await world.call('other', 'new', say)).status, 200);
  await tab.fine('red button');
});

test('a server that goes away is said to be away, and nothing is missed', async () => {
  await tab.close();
  tab = await open(browser, { expected: [/ERR_|Failed to load resource/] });
  page = tab.page;
  await page.goto(world.url);
  await page.locator('.line.live').waitFor();
  await world.halt('SIGKILL');
  await page.getByText('Reconnecting…').waitFor();
  await world.start();
  await steady(world, 'phoenix', 'risen', 1);
  await page.getByRole('link', { name: 'risen' }).waitFor();
  await page.locator('.line.live').waitFor();
  await tab.fine('restart');
});

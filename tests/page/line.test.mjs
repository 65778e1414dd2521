// The line between the page and the server: cut while the server goes on, and cut because it died. Whatever
// happened meanwhile is there afterwards.
import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { after, before, test } from 'node:test';
import { browse, open } from './browser.mjs';
import { rig, steady, until } from './rig.mjs';

let world;
let browser;
let wire;
before(async () => {
  world = await rig();
  browser = await browse();
  wire = await wired(world.url);
});
after(async () => {
  await browser?.close();
  await wire?.close();
  await world?.stop();
});

/** A wire to the server that can be cut, and mended at the same place. */
async function wired(url) {
  const { hostname, port } = new URL(url);
  const ends = new Set();
  let whole = true;
  const server = createServer((near) => {
    if (!whole) return void near.destroy();
    const far = connect(Number(port), hostname);
    for (const [one, other] of [[near, far], [far, near]]) {
      ends.add(one);
      one.on('error', () => {}).on('close', () => { ends.delete(one); other.destroy(); });
      one.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut() { whole = false; ends.forEach((end) => end.destroy()); },
    mend() { whole = true; },
    close: () => new Promise((resolve) => { ends.forEach((end) => end.destroy()); server.close(resolve); }),
  };
}

const happened = (page) => page.getByRole('list', { name: /^Events/ });

test('a line that is cut is said to be cut, and what happened meanwhile is told when it is back', async () => {
  await steady(world, 'worker', 'before', 1);
  const tab = await open(browser, { expected: [/ERR_|Failed to load resource/] });
  const { page } = tab;
  await page.goto(wire.url);
  await page.getByRole('link', { name: 'before' }).waitFor();
  await page.locator('.line.live').waitFor();
  wire.cut();
  await page.getByText('Reconnecting…').waitFor();
  await page.locator('.line.lost').waitFor();
  // Meanwhile: a new session, one that is held, one that is stopped.
  await steady(world, 'worker', 'meanwhile', 1);
  for (const [session, order] of [['held', 'pause'], ['over', 'kill']]) {
    await steady(world, 'worker', session, 1);
    const answer = await world.api('POST', `/api/sessions/worker/${session}/${order}`, { reason: `unseen ${session}` });
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
  }
  wire.mend();
  await page.locator('.line.live').waitFor();
  await page.getByText('Reconnecting…').waitFor({ state: 'hidden' });
  await page.getByRole('link', { name: 'meanwhile' }).waitFor();
  await page.getByRole('row', { name: /held/ }).getByText('Paused').waitFor();
  await happened(page).getByText('unseen held').waitFor();
  await happened(page).getByText('unseen over').waitFor();
  assert.equal(await page.getByRole('link', { name: 'over', exact: true }).count(), 0, 'what was stopped does not run');
  await tab.fine('cut');
  await tab.close();
});

test('a page that is open while the server is replaced shows what the new one knows', async () => {
  const tab = await open(browser, { expected: [/ERR_|Failed to load resource/] });
  const { page } = tab;
  await page.goto(`${wire.url}/agents/worker/sessions`);
  await page.getByRole('link', { name: 'meanwhile' }).waitFor();
  await page.locator('.line.live').waitFor();
  await world.halt('SIGTERM');
  await page.getByText('Reconnecting…').waitFor();
  await world.start();
  await steady(world, 'worker', 'afterwards', 1);
  await page.getByRole('link', { name: 'afterwards' }).waitFor();
  await page.locator('.line.live').waitFor();
  assert.ok((await until('its incidents', async () => (await world.api('GET', '/api/sessions/worker/over')).body)).state === 'killed', 'a stop outlives the server');
  await tab.fine('replaced');
  await tab.close();
});

// Pictures of every page, at two widths, light and dark, and docs/pages.md around them. `make pictures` calls
// it; `node shots.mjs incident-desktop` takes some of them only.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { browse } from './browser.mjs';
import { APART, GALLERY } from './gallery.mjs';
import { rig } from './rig.mjs';
import { scene } from './scene.mjs';

const out = process.env.SHOTS ?? 'shots';
const only = process.argv.slice(2);
const VIEWS = [['desktop', 1360, 850], ['phone', 390, 844]].flatMap((size) => ['light', 'dark'].map((scheme) => [...size, scheme]));
mkdirSync(out, { recursive: true });
const browser = await browse();

/** Takes the pictures of some pages in every view; `enter` is what is done before the first. */
async function take(url, pages, enter = async () => {}) {
  for (const [size, width, height, scheme] of VIEWS) {
    const wanted = pages.filter(([name]) => only.length === 0 || only.some((part) => `${name}-${size}-${scheme}`.includes(part)));
    if (wanted.length === 0) continue;
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: 1 });
    const page = await context.newPage();
    page.on('console', (message) => message.type() === 'error' && console.log(size, page.url(), message.text()));
    page.on('pageerror', (error) => console.log(size, page.url(), String(error)));
    await enter(page);
    for (const [name, path, act] of wanted) {
      await page.goto(url + path);
      await page.locator('h1').first().waitFor();
      await page.waitForFunction(() => !/Reading…|Asking the server/.test(document.body.innerText));
      await page.waitForTimeout(500);
      await act?.(page);
      await page.waitForTimeout(300);
      await page.screenshot({ path: join(out, `${name}-${size}-${scheme}.png`), fullPage: size === 'phone' && !act });
    }
    await context.close();
  }
}

function told() {
  const chapter = ([name, title, words]) => `## ${title}\n\n${words ? `${words}\n\n` : ''}![${title}, light](pages/${name}-light.webp)\n![${title}, dark](pages/${name}-dark.webp)\n`;
  return `# The page, page by page

Every page of the dashboard in light and dark, as \`tests/page/shots.mjs\` takes them from the real program
with agents that work, loop and delete; \`tests/page/shrink.py\` makes them small, and \`make pictures\` calls
both. They also work at phone width.

${[...GALLERY, ...APART].map(chapter).join('\n')}`;
}

const apart = (name) => APART.filter(([one]) => one === name).map(([one, , , path]) => [one, path()]);
const empty = await rig();
let shown;
try {
  shown = await scene();
  await take(empty.url, apart('first-call'));
  await take(shown.world.url, GALLERY.map(([name, , , path, act]) => [name, path(shown), act]));
  // From here on a key is needed.
  const make = async (name, role) => {
    const { key } = await shown.must('POST', '/api/keys', { name, role });
    return key;
  };
  const admin = await make('Ada', 'admin');
  shown.world.useKey(admin);
  await make('Night shift', 'operator');
  await make('Wall screen', 'viewer');
  await take(shown.world.url, apart('sign-in'));
  await take(shown.world.url, apart('keys'), async (page) => {
    await page.goto(`${shown.world.url}/sign-in`);
    await page.getByLabel('Key').fill(admin);
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => !url.pathname.startsWith('/sign-in'));
  });
  if (only.length === 0) writeFileSync(join(dirname(fileURLToPath(import.meta.url)), '../../docs/pages.md'), told());
} finally {
  await browser.close();
  await shown?.stop();
  await empty.stop();
}

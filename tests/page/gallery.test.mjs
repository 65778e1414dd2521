// The pictures in docs/: of every page there is, in light and dark, all of them shown, and none too large.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { APART, GALLERY } from './gallery.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const read = (path) => readFileSync(join(root, path), 'utf8');
const all = [...GALLERY, ...APART];
const known = { scored: { id: '1' }, plain: { id: '2' } };

test('every place and every tab of the page has its picture', () => {
  const paths = all.map(([, , , path]) => path(known).split('?')[0]);
  const routes = [...read('dashboard/src/lib/router.ts').matchAll(/^ {2}\['[\w-]+', '(\/[^']*)'\],$/gm)].map(([, route]) => route);
  assert.ok(routes.length >= 15, `routes are found: ${routes.join(' ')}`);
  for (const route of routes) {
    const pattern = new RegExp(`^${route.replace(/:\w+/g, '[^/]+')}$`);
    assert.ok(paths.some((path) => pattern.test(path)), `no picture shows ${route}`);
  }
  const tabs = (file, pattern) => [...read(file).matchAll(pattern)].map(([, tab]) => tab);
  const own = tabs('dashboard/src/pages/Agent.svelte', /to\('agents', name, '([\w-]+)'\)/g);
  const settings = tabs('dashboard/src/pages/Settings.svelte', /'\/settings\/([\w-]+)'/g);
  const views = tabs('dashboard/src/pages/Session.svelte', /\['(tree|conversation)', /g);
  assert.deepEqual([own.length, settings.length, views.length], [4, 3, 2], 'tabs are found');
  for (const tab of own) assert.ok(paths.some((path) => path.startsWith('/agents/') && path.endsWith(`/${tab}`)), `no picture shows the tab ${tab} of an agent`);
  for (const tab of settings) assert.ok(paths.includes(`/settings/${tab}`), `no picture shows the tab ${tab} of Settings`);
  for (const view of views) assert.ok(all.some(([, , , path]) => path(known).includes(`view=${view}`)), `no picture shows a session as ${view}`);
});

test('every picture is in docs, shown and small, and there is no other', () => {
  const wanted = all.flatMap(([name]) => [`${name}-dark.webp`, `${name}-light.webp`]).sort();
  assert.deepEqual(readdirSync(join(root, 'docs/pages')).sort(), wanted, 'run `make pictures`');
  const text = read('docs/pages.md');
  for (const picture of wanted) {
    assert.ok(text.includes(`(pages/${picture})`), `docs/pages.md does not show ${picture}`);
    assert.ok(statSync(join(root, 'docs/pages', picture)).size < 60_000, `${picture} is too large`);
  }
  for (const [, title] of all) assert.ok(text.includes(`## ${title}\n`), `docs/pages.md has no chapter "${title}"`);
  const shown = [...read('README.md').matchAll(/!\[[^\]]*\]\((docs\/[^)]+)\)/g)].map(([, path]) => path);
  assert.ok(shown.some((path) => path.includes('incident')), 'the README shows the incident page');
  for (const path of shown) assert.ok(existsSync(join(root, path)), `${path} is not there`);
});

// Builds the package: the addon with its types, the library for `require`, and a thin door for
// `import` that leads to the same one. `node build.mjs --debug` builds the addon without optimising.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const here = import.meta.dirname;
const debug = process.argv.includes('--debug');
const target = resolve(process.env.CARGO_TARGET_DIR ?? join(here, '../../target'));

function run(command, ...args) {
  const { status, error } = spawnSync(join(here, 'node_modules/.bin', command), args, { cwd: here, stdio: 'inherit' });
  if (status !== 0) throw error ?? new Error(`${command} failed`);
}

mkdirSync(join(here, 'native'), { recursive: true });
for (const file of readdirSync(join(here, 'native'))) if (file.endsWith('.node')) rmSync(join(here, 'native', file));
const profile = debug ? [] : ['--release'];
run('napi', 'build', ...profile, '--platform', '--no-js', '--package', 'deadstop-node', '--dts', 'native.d.ts',
  '--output-dir', 'native', '--target-dir', target, '--', '--locked');

rmSync(join(here, 'lib'), { recursive: true, force: true });
run('tsc', '--project', '.');
const require = createRequire(import.meta.url);
for (const door of ['index', 'ai']) {
  const names = Object.keys(require(join(here, 'lib', `${door}.js`))).filter((name) => name !== '__esModule');
  writeFileSync(join(here, 'lib', `${door}.mjs`), `export { ${names.sort().join(', ')} } from './${door}.js';\n`);
  writeFileSync(join(here, 'lib', `${door}.d.mts`), `export * from './${door}.js';\n`);
}

#!/usr/bin/env node
// `npx deadstop`: starts the program of this platform. Hooks that it installs name the program itself, so that
// they do not wait for Node.

const { spawnSync } = require('node:child_process');
const { constants } = require('node:os');
const { platform } = require('../lib/platform.js');

function program() {
  try {
    return require.resolve(`@deadstop/${platform()}/bin/deadstop`);
  } catch {
    console.error(`error: there is no deadstop program for ${platform()}`);
    console.error('hint: reinstall it with optional dependencies (npm install --include=optional), or build it from source');
    process.exit(1);
  }
}

const { status, signal, error } = spawnSync(program(), process.argv.slice(2), { stdio: 'inherit' });
if (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}
process.exit(status ?? 128 + (constants.signals[signal] ?? 0));

// Finds the addon: beside us where we were built here, or in the platform's own package.

import type * as Native from '../native/native.js';
import { DeadstopError } from './errors.js';
import { platform } from './platform.js';

function load(): typeof Native {
  const name = platform();
  const places = [`../native/deadstop.${name}.node`, `@deadstop/${name}/deadstop.node`];
  const errors: Error[] = [];
  for (const place of places) {
    try {
      return require(place) as typeof Native;
    } catch (error) {
      errors.push(error as Error);
    }
  }
  // A file that is there and does not load says more than one that is not there.
  const telling = errors.find((error) => (error as NodeJS.ErrnoException).code !== 'MODULE_NOT_FOUND') ?? errors[0];
  throw new DeadstopError(
    `deadstop has no engine for ${name}: ${telling?.message}; reinstall it with optional dependencies, or build it with \`bindings/node/check\``,
    { cause: telling },
  );
}

export type Engine = Native.Engine;
export const { Engine } = load();

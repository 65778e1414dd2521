// Finds the addon.

import type * as Native from '../native/native.js';
import { DeadstopError } from './errors.js';

type Report = { header?: { glibcVersionRuntime?: string } };

function platform(): string {
  const { platform, arch } = process;
  if (platform === 'linux') {
    const report = process.report?.getReport() as Report | undefined;
    return `linux-${arch}-${report?.header?.glibcVersionRuntime ? 'gnu' : 'musl'}`;
  }
  return platform === 'win32' ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

function load(): typeof Native {
  const name = platform();
  try {
    return require(`../native/deadstop.${name}.node`) as typeof Native;
  } catch (error) {
    throw new DeadstopError(
      `deadstop has no engine for ${name}: ${(error as Error).message}; build it with \`make sdk-node\``,
      { cause: error },
    );
  }
}

export type Engine = Native.Engine;
export const { Engine } = load();

// Tools: admitted before they run, settled by their results.

import { adviseError, advised } from './advice.js';
import { CANCELLED, ERROR, OK } from './core.js';
import type { Core, Flight } from './core.js';
import { DeadstopError, DeadstopKilled } from './errors.js';

export interface ToolOptions {
  /** The tool's name; the function's if not given. */
  name?: string;
  /** The server that it runs on: the circuit breaker counts per server. */
  server?: string;
  /** Makes an object of the function's arguments, for functions that do not take one. */
  describe?: (...args: never[]) => Record<string, unknown>;
}

type AnyFunction = (...args: any[]) => any;

/** Whose a guarded function is. It stands on the function, because what a `WeakMap` holds is collected late. */
const GUARDED = Symbol('deadstop.tool');

type Guarded = AnyFunction & { [GUARDED]?: { core: Core; original: AnyFunction } };

/** Guards a function. One that is async, or an async generator, stays what it is. */
export function guardTool<F extends AnyFunction>(core: Core, work: F, options: ToolOptions): F {
  if (typeof work !== 'function') {
    throw new DeadstopError('session.tool takes a function; for a set of tools see deadstop/ai');
  }
  const before = (work as Guarded)[GUARDED];
  if (before?.core === core) return work;
  // A tool that another session guards is guarded anew: a call is charged to one session.
  if (before !== undefined) return guardTool(core, before.original as F, { name: work.name, ...options });
  const name = options.name ?? work.name;
  if (!name) throw new DeadstopError('this tool has no name: session.tool(fn, { name: "search" })');
  const names = parametersOf(work);
  const { server = null, describe } = options;
  const kind = work.constructor.name;
  const told = (args: unknown[]): string => {
    return toJson(describe ? describe(...(args as never[])) : argumentsOf(names, args));
  };
  let guarded: AnyFunction;
  if (kind === 'AsyncGeneratorFunction') {
    guarded = async function* (this: unknown, ...args: unknown[]) {
      const scope = core.current();
      const call = core.admitted(await admit(core, scope, name, server, told(args)));
      yield* followEach(core, scope, call, work.apply(this, args) as AsyncGenerator);
    };
  } else if (kind === 'AsyncFunction' && core.governed) {
    guarded = async function (this: unknown, ...args: unknown[]) {
      const scope = core.current();
      const call = core.admitted(await admit(core, scope, name, server, told(args)));
      return run(core, scope, call, () => work.apply(this, args));
    };
  } else {
    guarded = function (this: unknown, ...args: unknown[]) {
      const scope = core.current();
      let call: number;
      try {
        call = core.admitted(core.engine.tool(scope, name, server, told(args)));
      } catch (error) {
        // Async functions do not throw.
        if (kind === 'AsyncFunction') return Promise.reject(error);
        throw error;
      }
      return run(core, scope, call, () => work.apply(this, args));
    };
  }
  Object.defineProperty(guarded, 'name', { value: work.name || name, configurable: true });
  Object.defineProperty(guarded, 'length', { value: work.length, configurable: true });
  Object.defineProperty(guarded, GUARDED, { value: { core, original: work } });
  return guarded as F;
}

/** Admits a tool call, runs it and settles it. */
export async function runTool<T>(
  core: Core,
  name: string,
  told: Record<string, unknown>,
  work: () => T | PromiseLike<T>,
  { server = null, failed }: { server?: string | null; failed?: (result: T) => boolean } = {},
): Promise<T> {
  const scope = core.current();
  const call = core.admitted(await admit(core, scope, name, server, toJson(told)));
  return run(core, scope, call, work, failed);
}

function admit(core: Core, scope: number, name: string, server: string | null, told: string) {
  return core.governed
    ? core.engine.toolLater(scope, name, server, told)
    : core.engine.tool(scope, name, server, told);
}

function run<T>(
  core: Core,
  scope: number,
  call: number,
  work: () => T | PromiseLike<T>,
  failed?: (result: T) => boolean,
): T | Promise<T> {
  let result: T | PromiseLike<T>;
  try {
    result = work();
  } catch (error) {
    throw ended(core, call, error);
  }
  if (isThenable<T>(result)) return follow(core, scope, call, result, failed);
  const note = core.ended(core.engine.end(call, failed?.(result) ? ERROR : OK, toText(result)));
  return advised(core, result, note);
}

/** Waits for a result, or for the end of its scope. */
function follow<T>(
  core: Core,
  scope: number,
  call: number,
  result: PromiseLike<T>,
  failed?: (result: T) => boolean,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const flight: Flight = {
      scope,
      cut(error) {
        core.engine.end(call, CANCELLED, '');
        reject(error);
      },
    };
    core.begin(flight);
    result.then(
      (value) => {
        if (!core.over(flight)) return;
        try {
          const note = core.ended(core.engine.end(call, failed?.(value) ? ERROR : OK, toText(value)));
          resolve(advised(core, value, note));
        } catch (error) {
          reject(error as Error);
        }
      },
      (error: unknown) => {
        if (core.over(flight)) reject(ended(core, call, error) as Error);
      },
    );
  });
}

async function* followEach(core: Core, scope: number, call: number, results: AsyncGenerator) {
  let last: unknown;
  let cut: ((error: DeadstopKilled) => void) | undefined;
  let killed: DeadstopKilled | undefined;
  const flight: Flight = {
    scope,
    cut(error) {
      core.engine.end(call, CANCELLED, '');
      killed = error;
      cut?.(error);
    },
  };
  core.begin(flight);
  try {
    for (;;) {
      const next = await new Promise<IteratorResult<unknown>>((resolve, reject) => {
        if (killed) return reject(killed);
        cut = reject;
        results.next().then(resolve, reject);
      });
      if (next.done) break;
      last = next.value;
      yield next.value;
    }
    if (core.over(flight)) {
      const told = advised(core, last, core.ended(core.engine.end(call, OK, toText(last))));
      // The last value is the result.
      if (told !== last) yield told;
    }
  } catch (error) {
    if (core.over(flight)) throw ended(core, call, error);
    throw killed ?? error;
  } finally {
    void results.return(undefined).catch(() => undefined);
    // The reader may have left in the middle.
    if (core.over(flight)) core.settled(core.engine.end(call, OK, toText(last)));
  }
}

/** Settles a call that threw; gives what is to be thrown. */
function ended(core: Core, call: number, error: unknown): unknown {
  const how = error instanceof DeadstopKilled ? CANCELLED : ERROR;
  const text = error instanceof Error ? `${error.name}: ${error.message}` : toText(error);
  try {
    adviseError(core, error, core.ended(core.engine.end(call, how, text)));
    return error;
  } catch (killed) {
    return error instanceof DeadstopKilled ? error : killed;
  }
}

export function isThenable<T>(value: unknown): value is PromiseLike<T> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';
}

/** A value as JSON: what is not JSON is taken for its text. */
export function toJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch {
    // Big numbers, and objects that hold themselves.
    const above: unknown[] = [];
    return JSON.stringify(value, function (this: unknown, _key, inner: unknown) {
      if (typeof inner === 'bigint') return Number.isSafeInteger(Number(inner)) ? Number(inner) : String(inner);
      if (typeof inner !== 'object' || inner === null) return inner;
      while (above.length > 0 && above.at(-1) !== this) above.pop();
      if (above.includes(inner)) return '[circular]';
      above.push(inner);
      return inner;
    }) ?? 'null';
  }
}

/** What a tool brought, as text. */
export function toText(value: unknown): string {
  return typeof value === 'string' ? value : toJson(value);
}

function argumentsOf(names: string[], args: unknown[]): unknown {
  const [first] = args;
  // Most tools take one object.
  if (args.length === 1 && typeof first === 'object' && first !== null && !Array.isArray(first)) return first;
  const told: Record<string, unknown> = {};
  args.forEach((arg, at) => (told[names[at] ?? `arg${at}`] = arg));
  return told;
}

/** The names of a function's parameters, as far as its text tells. */
function parametersOf(work: AnyFunction): string[] {
  const text = Function.prototype.toString.call(work);
  const found = /^(?:async\s+)?(?:function\s*\*?\s*[\w$]*\s*|\*?\s*[\w$]+\s*)?\(([^()[\]{}]*)\)|^(?:async\s+)?([\w$]+)\s*=>/.exec(text);
  const list = found?.[1] ?? found?.[2] ?? '';
  const names = list.split(',').map((name) => name.split('=')[0]!.replace('...', '').trim());
  return names.every((name) => /^[\w$]+$/.test(name)) ? names : [];
}

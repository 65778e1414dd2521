// Guards clients of OpenAI and Anthropic, in place or as copies. Only the `fetch` that they hold is
// replaced, on the one client that is guarded, and helpers that wrap errors pass a refusal on as it is.
// Its type stays what it was, and so do those of all answers.

import { currentCore } from './core.js';
import type { Core } from './core.js';
import { DeadstopBlocked, DeadstopError, DeadstopKilled } from './errors.js';
import { guardFetch } from './fetching.js';
import type { Family, Fetch } from './fetching.js';

interface Client {
  fetch: Fetch;
  _options?: { x509Transport?: unknown };
  withOptions?: (options: object) => object;
}

/**
 * What a guarded `fetch` was before, and whose it is; without a core it is shared by sessions. It stands on the
 * function, because what a `WeakMap` holds is collected late.
 */
const GUARDED = Symbol('deadstop.fetch');

type Guarded = Fetch & { [GUARDED]?: { core?: Core; original: Fetch } };

function guardOf(fetch: Fetch): Guarded[typeof GUARDED] {
  return (fetch as Guarded | undefined)?.[GUARDED];
}

function guardedAs(fetch: Fetch, guard: NonNullable<Guarded[typeof GUARDED]>): void {
  Object.defineProperty(fetch, GUARDED, { value: guard });
}

/** Throws if a client cannot be guarded. */
export function check(client: unknown): void {
  const found = fetchOf(client);
  const held = guardOf(found.fetch);
  if (held !== undefined && held.core === undefined) {
    throw new DeadstopError('this client is shared by many sessions; guard the original');
  }
  if (held?.core !== undefined && !held.core.restored) {
    const { agent, name } = held.core.engine;
    throw new DeadstopError(
      `this client is already guarded by the session ${name} of ${agent}; call its restore() first, or use session.guarded(client), which guards a copy`,
    );
  }
}

/** Whether a session guards a client. */
export function guards(core: Core, client: unknown): boolean {
  return guardOf((client as Client).fetch)?.core === core;
}

/** Guards a client; gives what makes it what it was. */
export function attach(core: Core, client: unknown): () => void {
  check(client);
  const found = fetchOf(client);
  const before = found.fetch;
  // A copy of a client that was let go has the guarded one still.
  const original = guardOf(before)?.original ?? before;
  const fetch = guardFetch(() => core, original, familyOf(client as object), refused);
  guardedAs(fetch, { core, original });
  found.fetch = fetch;
  const unhook = hook(found);
  return () => {
    if (found.fetch === fetch) found.fetch = original;
    unhook();
  };
}

/** A copy of a client that is not guarded. */
export function copyOf<T extends object>(client: T): T {
  const found = fetchOf(client);
  if (typeof found.withOptions !== 'function') {
    throw new DeadstopError(`${client.constructor.name} cannot be copied: guard it with session.attach(client)`);
  }
  const copy = found.withOptions({}) as Client;
  copy.fetch = guardOf(found.fetch)?.original ?? found.fetch;
  return copy as T;
}

/**
 * A copy of a client for many sessions at once: each call is charged to the session that the caller is
 * in (`session.run()`, or a scope). The original stays as it is.
 */
export function share<T extends object>(client: T): T {
  const copy = copyOf(client);
  const found = fetchOf(copy);
  const original = found.fetch;
  found.fetch = guardFetch(current, original, familyOf(copy), refused);
  guardedAs(found.fetch, { original });
  hook(found);
  return copy;
}

function current(): Core {
  const core = currentCore();
  if (core === undefined) {
    throw new DeadstopError('a shared client was called outside of every session; call it inside session.run(() => …)');
  }
  return core;
}

/** Helpers of the clients that wrap every error which is none of their own. */
const HELPERS = ['stream', 'runTools'];

type Resource = Record<string, unknown>;

/** Lets refusals come out of a client's helpers as they are; gives what undoes that. */
function hook(client: Client): () => void {
  const hooked: [Resource, string][] = [];
  const visit = (resource: Resource, depth: number): void => {
    for (const name of HELPERS) {
      const helper = resource[name];
      if (typeof helper !== 'function') continue;
      resource[name] = function (this: unknown, ...args: unknown[]): unknown {
        return unwrapping((helper as (...args: unknown[]) => unknown).apply(resource, args));
      };
      hooked.push([resource, name]);
    }
    for (const inner of Object.values(resource)) {
      const is = typeof inner === 'object' && inner !== null && (inner as Resource)['_client'] === client;
      if (is && depth < 4) visit(inner as Resource, depth + 1);
    }
  };
  visit(client as unknown as Resource, 0);
  const { withOptions } = client;
  if (typeof withOptions === 'function') {
    client.withOptions = (options) => {
      const copy = withOptions.call(client, options);
      hook(copy as Client);
      return copy;
    };
    hooked.push([client as unknown as Resource, 'withOptions']);
  }
  return () => hooked.forEach(([resource, name]) => delete resource[name]);
}

/** Has a stream of events tell the refusal in place of the error that was wrapped around it. */
function unwrapping(stream: unknown): unknown {
  const found = stream as { _emit?: (event: string, ...args: unknown[]) => unknown } | null;
  const emit = typeof found === 'object' ? found?._emit : undefined;
  if (found && typeof emit === 'function') {
    found._emit = function (this: unknown, event, ...args) {
      return emit.call(this, event, ...args.map(refusalIn));
    };
  }
  return stream;
}

function refusalIn(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof DeadstopKilled || cause instanceof DeadstopBlocked ? cause : error;
}

function fetchOf(client: unknown): Client {
  const found = client as Partial<Client> & { doGenerate?: unknown; callTool?: unknown; baseURL?: unknown };
  const refuse = (what: string): never => {
    throw new DeadstopError(what);
  };
  if (typeof client !== 'object' || client === null) {
    return refuse('pass a client of OpenAI or Anthropic, such as `new OpenAI()`; for anything that takes a fetch there is session.fetch');
  }
  if (found.doGenerate) return refuse('this is a model of the AI SDK: wrap it with the middleware of deadstop/ai');
  if (found.callTool) return refuse('this is an MCP client: guard it with session.wrapMcp(client)');
  if (found._options?.x509Transport) return refuse('a client with an X.509 transport sends its requests past every fetch and cannot be guarded');
  if (typeof found.fetch !== 'function' || typeof found.baseURL !== 'string') {
    const name = client.constructor?.name ?? 'this';
    return refuse(`${name} cannot be guarded: pass a client of OpenAI or Anthropic; for anything that takes a fetch there is session.fetch, for tools session.tool`);
  }
  return found as Client;
}

function familyOf(client: object): Family {
  for (let kind = client.constructor; typeof kind === 'function'; kind = Object.getPrototypeOf(kind) as typeof kind) {
    if (/openai/i.test(kind.name)) return 'openai';
    if (/anthropic/i.test(kind.name)) return 'anthropic';
  }
  // Bundlers change names.
  if ('chat' in client) return 'openai';
  return 'messages' in client ? 'anthropic' : 'any';
}

/**
 * What these clients take for an answer, and what throws a refusal as soon as they look at it. An
 * error that their fetch throws they would take for a broken line: they would try again, wait in
 * between, and at last throw an error of their own.
 */
function refused(error: Error): Response {
  return new Proxy(Object.create(null) as Response, {
    get(_, name) {
      if (typeof name === 'symbol' || name === 'then' || name === 'body') return undefined;
      throw error;
    },
  });
}

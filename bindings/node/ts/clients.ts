// Guards clients of OpenAI and Anthropic in place. Only the `fetch` that they hold is replaced, on the
// one client that is guarded; its type stays what it was, and so do those of all answers.

import type { Core } from './core.js';
import { DeadstopError } from './errors.js';
import { guardFetch } from './fetching.js';
import type { Family, Fetch } from './fetching.js';

interface Client {
  fetch: Fetch;
  _options?: { x509Transport?: unknown };
}

/** What a guarded `fetch` was before, and whose it is. */
const guarded = new WeakMap<Fetch, { core: Core; original: Fetch }>();

/** Throws if a client cannot be guarded. */
export function check(client: unknown): void {
  const found = fetchOf(client);
  const held = guarded.get(found.fetch);
  if (held !== undefined && !held.core.restored) {
    const { agent, name } = held.core.engine;
    throw new DeadstopError(
      `this client is already guarded by the session ${name} of ${agent}; call its restore() first`,
    );
  }
}

/** Whether a session guards a client. */
export function guards(core: Core, client: unknown): boolean {
  return guarded.get((client as Client).fetch)?.core === core;
}

/** Guards a client; gives what makes it what it was. */
export function attach(core: Core, client: unknown): () => void {
  check(client);
  const found = fetchOf(client);
  const before = found.fetch;
  // A copy of a client that was let go has the guarded one still.
  const original = guarded.get(before)?.original ?? before;
  const fetch = guardFetch(core, original, familyOf(client as object), refused);
  guarded.set(fetch, { core, original });
  found.fetch = fetch;
  return () => {
    if (found.fetch === fetch) found.fetch = original;
  };
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

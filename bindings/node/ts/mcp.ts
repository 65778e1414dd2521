// MCP: every tool call of a client is admitted before it is sent.

import type { Core } from './core.js';
import { DeadstopError } from './errors.js';
import { runTool } from './tools.js';

interface Request {
  method: string;
  params?: { name?: string; arguments?: Record<string, unknown> };
}
interface Options {
  signal?: AbortSignal;
}
interface Result {
  isError?: boolean;
  content?: unknown;
}
interface Client {
  request?(request: Request, schema: unknown, options?: Options): Promise<Result>;
  getServerVersion?(): { name?: string } | undefined;
}

const wrapped = new WeakSet<object>();

/** Guards an MCP client in place. A result that says `isError` counts as an error. */
export function wrapMcp(core: Core, client: object, server?: string): () => void {
  const found = client as Client;
  if (typeof found.request !== 'function' || !('callTool' in client)) {
    throw new DeadstopError(`${client?.constructor?.name ?? 'this'} is no client of @modelcontextprotocol/sdk`);
  }
  if (wrapped.has(client)) throw new DeadstopError('this MCP client is already guarded');
  wrapped.add(client);
  const { request } = found;
  const where = (): string | null => server ?? found.getServerVersion?.()?.name ?? null;

  // `callTool` goes through it, and so do calls that become tasks.
  found.request = function (asked, schema, options) {
    if (asked.method !== 'tools/call') return request.call(found, asked, schema, options);
    const { name = '', arguments: told = {} } = asked.params ?? {};
    const aborts = new AbortController();
    const stop = (): void => aborts.abort(options?.signal?.reason);
    options?.signal?.addEventListener('abort', stop, { once: true });
    if (options?.signal?.aborted) stop();
    const work = (): Promise<Result> => request.call(found, asked, schema, { ...options, signal: aborts.signal });
    const running = runTool(core, name, told, work, { server: where(), failed: (result) => result.isError === true });
    return running.finally(() => {
      options?.signal?.removeEventListener('abort', stop);
      // If it was cut off, the server is told.
      aborts.abort();
    });
  };
  return () => {
    wrapped.delete(client);
    found.request = request;
  };
}

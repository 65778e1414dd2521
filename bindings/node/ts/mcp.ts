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
interface Message {
  type: string;
  result?: Result;
  error?: Error;
}
interface Client {
  request?(request: Request, schema: unknown, options?: Options): Promise<Result>;
  requestStream?(request: Request, schema: unknown, options?: Options): AsyncGenerator<Message>;
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
  const { request, requestStream } = found;
  const where = (): string | null => server ?? found.getServerVersion?.()?.name ?? null;

  // `callTool` goes through it.
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
  if (typeof requestStream === 'function') {
    found.requestStream = async function* (asked, schema, options) {
      const messages = requestStream.call(found, asked, schema, options);
      if (asked.method !== 'tools/call') return yield* messages;
      const { name = '', arguments: told = {} } = asked.params ?? {};
      // What comes before the end is passed on; the end settles the call.
      const passed: Message[] = [];
      let news: (() => void) | undefined;
      let last: Message | undefined;
      const work = async (): Promise<Result> => {
        for await (const message of messages) {
          if (message.type === 'result' || message.type === 'error') last = message;
          else passed.push(message);
          news?.();
        }
        if (last?.type === 'error') throw last.error ?? new Error('the tool failed');
        return last?.result ?? {};
      };
      let over = false;
      const running = runTool(core, name, told, work, { server: where(), failed: (result) => result.isError === true });
      const ended = running.then(
        () => undefined,
        (error: unknown) => ({ error }),
      ).finally(() => {
        over = true;
        news?.();
      });
      while (!over || passed.length > 0) {
        const message = passed.shift();
        if (message !== undefined) yield message;
        else await new Promise<void>((resolve) => (news = resolve));
      }
      const failed = await ended;
      if (failed !== undefined && failed.error !== last?.error) throw failed.error;
      if (last !== undefined) yield last;
    };
  }
  return () => {
    wrapped.delete(client);
    found.request = request;
    if (requestStream) found.requestStream = requestStream;
  };
}

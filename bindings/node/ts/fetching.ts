// A `fetch` under guard: requests are read before they are sent, answers as they come.

import { BODY } from './core.js';
import type { Core, Flight } from './core.js';
import { DeadstopBlocked, DeadstopKilled } from './errors.js';
import { sameBut, withBody } from './response.js';

export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** Which API a client speaks; `any` if only the address can tell. */
export type Family = 'openai' | 'anthropic' | 'any';

/** How those headers begin. */
const WINDOWS = /^(anthropic-ratelimit|x-codex|x-ratelimit)-/;

/** A call whose answer is read. It is collected with the answer. */
class Call implements Flight {
  readonly scope: number;
  readonly #core: Core;
  readonly #exchange: number;
  readonly #controller = new AbortController();
  /** The caller's; loosely, because clients hang the answer on it. */
  readonly #signal: WeakRef<AbortSignal> | undefined;
  readonly #aborted: () => void;
  #killed: DeadstopKilled | undefined;
  /** Breaks off the code that waits. */
  #reject: ((error: unknown) => void) | undefined;
  /** Breaks off the code that reads. */
  answer: WeakRef<ReadableStreamDefaultController<Uint8Array>> | undefined;

  constructor(core: Core, scope: number, exchange: number, signal: AbortSignal | null | undefined) {
    this.#core = core;
    this.scope = scope;
    this.#exchange = exchange;
    this.#signal = signal ? new WeakRef(signal) : undefined;
    this.#aborted = () => {
      // The caller does not want it any more.
      if (this.#end()) core.noticed(core.engine.abandon(exchange));
      this.#controller.abort(this.#signal?.deref()?.reason);
    };
    core.begin(this);
    if (signal?.aborted) this.#aborted();
    else signal?.addEventListener('abort', this.#aborted, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get body(): Uint8Array | null {
    return this.#core.engine.body(this.#exchange);
  }

  /** Waits for something, or for the end of its scope. */
  wait<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      work.then(resolve, reject);
    });
  }

  begins(response: Response): void {
    this.#windows(response);
    this.#core.engine.answer(this.#exchange, response.status, response.headers.get('content-type') ?? '');
  }

  cut(error: DeadstopKilled): void {
    this.#killed = error;
    this.#signal?.deref()?.removeEventListener('abort', this.#aborted);
    this.#core.noticed(this.#core.engine.abandon(this.#exchange));
    this.#reject?.(error);
    this.answer?.deref()?.error(error);
    this.#controller.abort(error);
  }

  /** Judges bytes, or the end; gives what may be passed on. */
  async pass(bytes: Uint8Array | null): Promise<Uint8Array | null> {
    const { engine, governed } = this.#core;
    const exchange = this.#exchange;
    let passed: number | Uint8Array | string;
    if (bytes === null) {
      passed = governed ? await engine.finishLater(exchange) : engine.finish(exchange);
      if (!this.#end() && !this.#killed) return null;
    } else {
      passed = governed ? await engine.pushLater(exchange, bytes) : engine.push(exchange, bytes);
    }
    return this.#judged(bytes, passed);
  }

  /** Judges an answer that has come as a whole. */
  async whole(response: Response, bytes: Uint8Array): Promise<Uint8Array> {
    this.#windows(response);
    const { engine, governed } = this.#core;
    const { status } = response;
    const kind = response.headers.get('content-type') ?? '';
    const passed = governed
      ? await engine.wholeLater(this.#exchange, status, kind, bytes)
      : engine.whole(this.#exchange, status, kind, bytes);
    if (!this.#end() && !this.#killed) return bytes;
    return this.#judged(bytes, passed);
  }

  /** Providers report in headers how much of a window is used. */
  #windows(response: Response): void {
    const found: string[] = [];
    response.headers.forEach((value, name) => {
      if (WINDOWS.test(name)) found.push(name, value);
    });
    if (found.length > 0) this.#core.engine.headers(this.#exchange, found);
  }

  #judged<B extends Uint8Array | null>(bytes: B, passed: number | Uint8Array | string): B | Uint8Array {
    // Meanwhile, while a server was asked.
    if (this.#killed) throw this.#killed;
    if (typeof passed === 'string') {
      this.abandon();
      throw this.#core.refused(passed);
    }
    if (typeof passed === 'number') {
      this.#core.settled(passed);
      return bytes;
    }
    this.#core.tell();
    return passed;
  }

  /** It failed by itself. */
  broken(): void {
    if (this.#end()) this.#core.noticed(this.#core.engine.broken(this.#exchange));
  }

  /** The rest is not read. */
  abandon(): void {
    if (this.#end()) this.#core.noticed(this.#core.engine.abandon(this.#exchange));
    this.#controller.abort();
  }

  /** It was answered with an error, which the engine knows. */
  done(): void {
    if (this.#end()) this.#core.noticed(this.#core.engine.abandon(this.#exchange));
  }

  #end(): boolean {
    this.#signal?.deref()?.removeEventListener('abort', this.#aborted);
    return this.#core.over(this);
  }
}

/** Answers that were dropped are settled when they are collected. */
const forgotten = new FinalizationRegistry<Call>((call) => call.abandon());

/**
 * Puts a `fetch` under guard. `pick` gives the session that a call is charged to, `refuse` says how a
 * refusal is told to the caller.
 */
export function guardFetch(
  pick: () => Core,
  original: Fetch,
  family: Family,
  refuse: (error: Error) => Response = (error) => {
    throw error;
  },
): Fetch {
  return async function fetch(input, init) {
    let core: Core;
    try {
      core = pick();
    } catch (error) {
      return refuse(error as Error);
    }
    if (core.restored) return original(input, init);
    const request = await read(input, init);
    const { url, method, body } = request;
    const { engine } = core;
    const scope = core.current();
    const door = core.door(family, method, url);
    let call: Call;
    let decided: number | string;
    try {
      decided = core.governed
        ? await engine.requestLater(scope, door, body)
        : engine.request(scope, door, body);
      call = new Call(core, scope, core.admitted(decided), request.signal);
    } catch (error) {
      return refuse(error as Error);
    }
    const changed = Number(decided) & BODY ? call.body : null;
    const sent: RequestInit = { ...request.init, signal: call.signal };
    if (changed !== null) {
      sent.body = changed as BodyInit;
      sent.headers = withoutLength(sent.headers);
    }
    try {
      const response = await call.wait(original(url, sent));
      return await answered(call, response);
    } catch (error) {
      if (error instanceof DeadstopKilled || error instanceof DeadstopBlocked) return refuse(error);
      call.broken();
      throw error;
    }
  };
}

async function answered(call: Call, response: Response): Promise<Response> {
  const body = response.body;
  if (response.status >= 400) {
    call.begins(response);
    call.done();
    return response;
  }
  if (body === null) {
    call.begins(response);
    await call.pass(null);
    return response;
  }
  // A document is of no use before it is complete: it is judged before the caller sees it.
  if (response.headers.get('content-type')?.startsWith('application/json')) {
    const bytes = new Uint8Array(await call.wait(response.arrayBuffer()));
    return withBody(response, await call.whole(response, bytes));
  }
  call.begins(response);
  const chunks = chunksOf(body);
  const stream = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        call.answer = new WeakRef(controller);
      },
      async pull(controller) {
        for (;;) {
          const read = await next(call, chunks);
          const passed = await call.pass(read);
          if (passed !== null && passed.length > 0) controller.enqueue(passed);
          if (read === null) return controller.close();
          if (passed !== null && passed.length > 0) return;
        }
      },
      async cancel(reason) {
        call.abandon();
        await chunks.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  forgotten.register(stream, call);
  return sameBut(response, stream);
}

async function next(call: Call, chunks: Chunks): Promise<Uint8Array | null> {
  try {
    return await chunks.next();
  } catch (error) {
    call.broken();
    throw error;
  }
}

interface Chunks {
  next(): Promise<Uint8Array | null>;
  cancel(reason: unknown): Promise<unknown>;
}

/** A body in pieces: of a web stream, or of one of Node's, which other fetches bring. */
function chunksOf(body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): Chunks {
  if ('getReader' in body) {
    const reader = body.getReader();
    return {
      next: async () => (await reader.read()).value ?? null,
      cancel: (reason) => reader.cancel(reason),
    };
  }
  const chunks = body[Symbol.asyncIterator]();
  return {
    next: async () => {
      const { done, value } = await chunks.next();
      return done ? null : value;
    },
    cancel: async () => chunks.return?.(),
  };
}

interface Read {
  url: string;
  method: string;
  body: string | Uint8Array;
  signal: AbortSignal | null | undefined;
  init: RequestInit;
}

/** A request, as far as it can be read: what is sent in pieces is not. */
async function read(input: string | URL | Request, init: RequestInit = {}): Promise<Read> {
  if (typeof input === 'string' || input instanceof URL) {
    const { body, method = 'GET', signal } = init;
    const text = typeof body === 'string' || body instanceof Uint8Array ? body : await blob(body);
    return { url: String(input), method, body: text, signal, init };
  }
  const request = new Request(input, init);
  const body = new Uint8Array(await request.clone().arrayBuffer());
  const { url, method, headers, signal, redirect } = request;
  const sent: RequestInit = { ...init, method, headers, redirect };
  if (body.length > 0) sent.body = body as BodyInit;
  return { url, method, body, signal, init: sent };
}

async function blob(body: RequestInit['body']): Promise<string | Uint8Array> {
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  if (body instanceof Blob) return new Uint8Array(await body.arrayBuffer());
  return '';
}

function withoutLength(headers: RequestInit['headers']): Headers {
  const kept = new Headers(headers);
  kept.delete('content-length');
  return kept;
}

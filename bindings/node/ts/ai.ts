// The Vercel AI SDK: models by a middleware, tools as a set.
//
//     const model = wrapLanguageModel({ model: openai('gpt-4o'), middleware: middleware(session) });
//     await generateText({ model, tools: guardTools(session, tools), abortSignal: session.signal, … });

import { CANCELLED, ERROR, OK } from './core.js';
import type { Core, Flight } from './core.js';
import { DeadstopBlocked, DeadstopKilled } from './errors.js';
import { coreOf } from './session.js';
import type { Session } from './session.js';
import { guardTool, toJson } from './tools.js';

/** Bytes of a prompt that are taken for a token, as the engine takes them. */
const BYTES_PER_TOKEN = 3;
/** Letters of an answer that are taken for a token, until its usage is known. */
const LETTERS_PER_TOKEN = 4;
/** Letters of an answer that are kept until its end. */
const KEPT = 65536;

interface Counted {
  total?: number;
  noCache?: number;
  cacheRead?: number;
  cacheWrite?: number;
}
interface Usage {
  inputTokens?: number | Counted;
  outputTokens?: number | { total?: number };
  cachedInputTokens?: number;
}
interface Part {
  type: string;
  text?: string;
  delta?: string;
  usage?: Usage;
}
interface Message {
  role: string;
  content: string | Part[];
}
interface Params {
  prompt: Message[];
  maxOutputTokens?: number;
}
interface Model {
  modelId: string;
  provider: string;
}

/** What `wrapLanguageModel` takes, of every version that has it. */
export interface Middleware {
  readonly specificationVersion: 'v4';
  wrapGenerate(options: { doGenerate: () => PromiseLike<any>; params: any; model: any }): Promise<any>;
  wrapStream(options: { doStream: () => PromiseLike<any>; params: any; model: any }): Promise<any>;
}

/** A middleware under which every call of a model is guarded. */
export function middleware(session: Session<unknown>): Middleware {
  const core = coreOf(session);
  return {
    specificationVersion: 'v4',
    async wrapGenerate({ doGenerate, params, model }) {
      if (core.restored) return doGenerate();
      const call = await begin(core, params as Params, model as Model);
      const answer = await call.wait(doGenerate() as PromiseLike<{ usage: Usage; content?: Part[] }>);
      const text = (answer.content ?? []).map((part) => part.text ?? '').join('');
      call.end(OK, answer.usage, text);
      return answer;
    },
    async wrapStream({ doStream, params, model }) {
      if (core.restored) return doStream();
      const call = await begin(core, params as Params, model as Model);
      const answer = await call.wait(doStream() as PromiseLike<{ stream: ReadableStream<Part> }>);
      return { ...answer, stream: call.follow(answer.stream) };
    },
  };
}

/** The same tools, each of them guarded where it runs. Those without `execute` run elsewhere. */
export function guardTools<T extends object>(session: Session<unknown>, tools: T): T {
  const core = coreOf(session);
  const guarded: Record<string, unknown> = {};
  for (const [name, tool] of Object.entries(tools) as [string, { execute?: (...args: unknown[]) => unknown }][]) {
    if (typeof tool?.execute !== 'function') {
      guarded[name] = tool;
      continue;
    }
    const copy = Object.create(Object.getPrototypeOf(tool) as object, Object.getOwnPropertyDescriptors(tool)) as typeof tool;
    const describe = (input: Record<string, unknown>): Record<string, unknown> => input;
    copy.execute = guardTool(core, tool.execute.bind(tool), { name, describe });
    guarded[name] = copy;
  }
  return guarded as T;
}

async function begin(core: Core, params: Params, model: Model): Promise<Call> {
  const { prompt, maxOutputTokens } = params;
  const scope = core.current();
  const input = Math.ceil(Buffer.byteLength(toJson(prompt)) / BYTES_PER_TOKEN);
  const since = prompt.findLastIndex((message) => message.role === 'assistant') + 1;
  const news = prompt.slice(since).filter((message) => message.role !== 'system');
  const told = JSON.stringify({
    model: model.modelId,
    provider: model.provider,
    input_tokens: input,
    max_output_tokens: maxOutputTokens,
    prompt: news.map(textOf).join('\n') || undefined,
    from_person: news.some((message) => message.role === 'user'),
  });
  const decided = core.governed ? await core.engine.modelLater(scope, told) : core.engine.model(scope, told);
  return new Call(core, scope, core.admitted(decided), input);
}

function textOf(message: Message): string {
  if (typeof message.content === 'string') return message.content;
  return message.content.map((part) => part.text ?? '').join('\n');
}

/** A model call on its way. */
class Call implements Flight {
  readonly scope: number;
  readonly #core: Core;
  readonly #number: number;
  readonly #input: number;
  #reject: ((error: unknown) => void) | undefined;
  #letters = 0;
  #text = '';

  constructor(core: Core, scope: number, number: number, input: number) {
    this.#core = core;
    this.scope = scope;
    this.#number = number;
    this.#input = input;
    core.begin(this);
  }

  cut(error: DeadstopKilled): void {
    this.#settle(CANCELLED, undefined, this.#text);
    this.#reject?.(error);
  }

  /** Waits for an answer, or for the end of its scope. */
  wait<T>(answer: PromiseLike<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#reject = reject;
      answer.then(resolve, (error: unknown) => {
        if (this.#core.over(this)) this.#settle(ERROR, undefined, '', 0);
        reject(error as Error);
      });
    });
  }

  end(how: number, usage: Usage | undefined, text: string): void {
    if (this.#core.over(this)) this.#core.settled(this.#settle(how, usage, text));
  }

  /** An answer that is judged as it is read. */
  follow(stream: ReadableStream<Part>): ReadableStream<Part> {
    const reader = stream.getReader();
    let finished: Usage | undefined;
    let failed = false;
    return new ReadableStream<Part>(
      {
        start: (controller) => {
          this.#reject = (error) => {
            controller.error(error);
            void reader.cancel(error).catch(() => undefined);
          };
        },
        pull: async (controller) => {
          try {
            const { done, value } = await reader.read();
            if (done) {
              this.end(failed ? ERROR : OK, finished, this.#text);
              return controller.close();
            }
            if (value.type === 'finish') finished = value.usage;
            if (value.type === 'error') failed = true;
            const text = /^(text|reasoning)(-delta)?$/.test(value.type) ? (value.delta ?? value.text ?? '') : '';
            if (text !== '') this.#progress(text);
            controller.enqueue(value);
          } catch (error) {
            const ours = error instanceof DeadstopKilled || error instanceof DeadstopBlocked;
            if (this.#core.over(this)) this.#settle(ours ? CANCELLED : ERROR, finished, this.#text);
            if (ours) void reader.cancel(error).catch(() => undefined);
            throw error;
          }
        },
        cancel: async (reason) => {
          if (this.#core.over(this)) this.#settle(finished ? OK : CANCELLED, finished, this.#text);
          await reader.cancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
  }

  #progress(text: string): void {
    this.#letters += text.length;
    if (this.#text.length < KEPT) this.#text += text;
    const tokens = Math.ceil(this.#letters / LETTERS_PER_TOKEN);
    this.#core.settled(this.#core.engine.progress(this.#number, tokens, text));
  }

  #settle(how: number, usage: Usage | undefined, text: string, input = this.#input): number | string {
    const used = usageOf(usage, input, Math.ceil(this.#letters / LETTERS_PER_TOKEN));
    return this.#core.engine.endModel(this.#number, how, used, text);
  }
}

function usageOf(usage: Usage | undefined, input: number, output: number) {
  const { inputTokens, outputTokens, cachedInputTokens = 0 } = usage ?? {};
  const counted: Counted = typeof inputTokens === 'object' ? inputTokens : { total: inputTokens, cacheRead: cachedInputTokens };
  const { total, cacheRead = 0, cacheWrite = 0 } = counted;
  const plain = counted.noCache ?? (total === undefined ? input : Math.max(0, total - cacheRead - cacheWrite));
  const said = typeof outputTokens === 'object' ? outputTokens.total : outputTokens;
  return { input: plain, output: said ?? output, cacheRead, cacheWrite };
}

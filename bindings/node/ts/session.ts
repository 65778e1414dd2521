// Sessions and scopes, as users see them.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { attach, check, copyOf, guards } from './clients.js';
import { Core, currentCore } from './core.js';
import type { OnSteer, OnTripped } from './core.js';
import { DeadstopError, DeadstopKilled, hump, humps, refusalOf, underscored } from './errors.js';
import { guardFetch } from './fetching.js';
import type { Fetch } from './fetching.js';
import { wrapMcp } from './mcp.js';
import { guardTool, runTool } from './tools.js';
import type { ToolOptions } from './tools.js';

/** Limits of a scope: for all that happens in it and below it. What is not set is not limited. */
export interface Limits {
  /** Input tokens, without cache reads. */
  inputTokenLimit?: number;
  /** Output tokens, reasoning included. */
  outputTokenLimit?: number;
  /** Both together. */
  totalTokenLimit?: number;
  /** Dollars, for models and tools. */
  maxCostUsd?: number;
  /** Tool calls. */
  maxSteps?: number;
  /** Model calls. */
  maxModelCalls?: number;
  /** Seconds since the scope was opened. */
  maxWallTimeSeconds?: number;
}

/** What a scope is opened with. */
export interface ScopeOptions extends Limits {
  /** Is called once for each trip in it, with the context; cannot prevent anything. */
  onTripped?: OnTripped;
  /** Is called each time the model is steered in it: `context.advice` is what it is told. */
  onSteer?: OnSteer;
}

/** What a session is opened with. */
export interface GuardOptions extends ScopeOptions {
  /** Who is running; from `DEADSTOP_AGENT` if not given. */
  agent?: string;
  /** This run's name; from `DEADSTOP_SESSION`, or made up. */
  session?: string;
  /** A preset (`observe`, `balanced`, `strict`), a file, a text, or an object. */
  policy?: string | URL | object;
  /** `enforce`, or `log-only`: trips are told and nothing is refused. */
  mode?: 'enforce' | 'log-only';
  /**
   * A Deadstop server that governs the session; from `DEADSTOP_SERVER`, or none. `''` is none, also if
   * the environment names one. Its policy then replaces `policy`.
   */
  server?: string;
  /** A file that gets a line for everything that happens. */
  captures?: string;
  /** Dollars per million tokens, in and out, of models of your own. */
  pricingTable?: Record<string, readonly [number, number]>;
  /** Whether tool calls are judged when an answer asks for them. They are. */
  watchAnswers?: boolean;
}

/** What a scope has used. */
export interface Figures {
  /** Tool calls. */
  readonly steps: number;
  readonly modelCalls: number;
  /** Without cache reads. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costUsd: number;
  /** Dollars set aside for calls that run. */
  readonly reservedUsd: number;
  /** Calls that run. */
  readonly inFlight: number;
}

/** What a session has used. A kill freezes it: only calls in flight are still booked. */
export interface State extends Figures {
  readonly agent: string;
  readonly session: string;
  readonly mode: string;
  readonly killed: boolean;
  readonly killReason: string | null;
  /** Changes with every decision; a kill freezes it. */
  readonly stateVersion: number;
  /** Tools that the policy denies. */
  readonly forbiddenTools: string[];
  readonly scopes: (Figures & { readonly path: string[]; readonly killed: boolean })[];
}

/** A window of a provider, as its answers report it. */
export interface Quota {
  /** The provider, by the name under which it is called. */
  readonly provider: string;
  /** The window's name: `5h`, `7d`, `primary`, `requests`. */
  readonly window: string;
  /** The share that is used. */
  readonly used: number;
  /** When it begins anew, in milliseconds since 1970. */
  readonly resetsMs: number;
}

/** How a session is. */
export interface Health {
  /** Whether it is over. */
  readonly killed: boolean;
  /** Who has the say and what was said; `unreachable` while the server is away. */
  readonly authorityState: 'active' | 'paused' | 'killed' | 'unreachable';
  /** `degraded` while the server is away, `inactive` once killed or restored. */
  readonly status: 'active' | 'degraded' | 'inactive';
  /** Where a kill lasts: `pending` until the server has it. */
  readonly durability: 'process' | 'pending' | 'server';
  /** The server, if there is one. */
  readonly server: {
    readonly url: string;
    readonly connected: boolean;
    /** What went wrong last. */
    readonly problem: string | null;
    readonly failMode: 'open' | 'closed';
    /** Reports that wait to be sent. */
    readonly waiting: number;
    /** Reports that were dropped because too many waited. */
    readonly dropped: number;
    readonly knowsKill: boolean;
  } | null;
  /** Captures that could not be written. */
  readonly lostCaptures: number;
}

/** Something that happened: names and figures, never what was said. */
export interface Capture {
  readonly atMs: number;
  readonly what: 'admitted' | 'refused' | 'cut' | 'settled' | 'tripped' | 'killed';
  readonly scope: string[];
  readonly name: string;
  readonly verdict: string;
  readonly why?: string;
  readonly costUsd?: number;
}

const LIMITS = [
  'inputTokenLimit',
  'outputTokenLimit',
  'totalTokenLimit',
  'maxCostUsd',
  'maxSteps',
  'maxModelCalls',
  'maxWallTimeSeconds',
];
const GUARD = ['agent', 'session', 'policy', 'mode', 'server', 'captures', 'pricingTable', 'watchAnswers', 'onTripped', 'onSteer'];

/** The inside of a session, for the rest of this package. A `WeakMap` would keep sessions until old objects are
 * collected, which is seldom: sessions that end are many. */
let insideOf: (session: Session<unknown>) => Core | undefined;

/** The session that this piece of work is in: the innermost `session.run()` or scope. */
export function currentSession(): Session<unknown> | undefined {
  return currentCore()?.session as Session<unknown> | undefined;
}

export function coreOf(session: Session<unknown>): Core {
  const core = insideOf(session);
  if (core === undefined) throw new DeadstopError('this is no deadstop session');
  return core;
}

/**
 * A part of a session, with limits of its own: a sub-agent, a crew, a pipeline. What happens inside is
 * charged to it and to everything above it.
 */
export class Scope {
  readonly #core: Core;
  readonly #number: number;

  /** @internal */
  constructor(core: Core, number: number) {
    this.#core = core;
    this.#number = number;
    hold(this);
  }

  /** Its names inside the session, the outermost first. */
  get path(): string[] {
    return this.#core.engine.path(this.#number);
  }

  /** Its name. */
  get name(): string {
    return this.path.at(-1) ?? this.#core.engine.name;
  }

  /** Aborted once it, or anything above it, is over; its reason is the kill. */
  get signal(): AbortSignal {
    return this.#core.signal(this.#number);
  }

  /**
   * Sets limits, also while it is in use; they hold from the next call on. Limits that are not given
   * stay, `null` removes one. Gives itself.
   */
  limit(limits: { [K in keyof Limits]?: Limits[K] | null }): this {
    const typed = JSON.parse(limitsOf(limits, [])) as object;
    const known = JSON.parse(this.#core.engine.limits(this.#number)) as object;
    mend(() => this.#core.engine.setLimits(this.#number, JSON.stringify({ ...known, ...typed })));
    return this;
  }

  /** Its limits. */
  getLimits(): Limits {
    const limits = humps<Record<string, number | null>>(JSON.parse(this.#core.engine.limits(this.#number)));
    return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== null));
  }

  /** What it has used. */
  getFigures(): Figures {
    return humps(JSON.parse(this.#core.engine.figures(this.#number)));
  }

  /** Calls a function once for each trip in it. It cannot prevent anything. Gives itself. */
  onTripped(observer: OnTripped): this {
    this.#core.observe(this.#number, observer);
    return this;
  }

  /** Calls a function each time the model is steered in it. It cannot prevent anything. Gives itself. */
  onSteer(observer: OnSteer): this {
    this.#core.observeSteers(this.#number, observer);
    return this;
  }

  /** Ends it and all below it, for good; its siblings go on. */
  kill(reason = ''): void {
    void this.#core.kill(this.#number, reason);
  }

  /**
   * Tells that the agent's context was compacted: what it forgot it may look up again, so the loop guard
   * starts over. A guarded client sees that by itself.
   */
  compacted(): void {
    this.#core.engine.compacted(this.#number);
  }

  /** A scope inside it: see {@link Session.scope}. */
  scope(name: string, options?: ScopeOptions): Scope;
  scope<T>(name: string, work: (scope: Scope) => T): T;
  scope<T>(name: string, options: ScopeOptions, work: (scope: Scope) => T): T;
  scope<T>(name: string, options?: ScopeOptions | ((scope: Scope) => T), work?: (scope: Scope) => T): Scope | T {
    return open(this.#core, this.#number, name, options, work);
  }

  /** Runs something inside it. */
  run<T>(work: (scope: Scope) => T): T {
    return this.#core.enter(this.#number, () => work(this));
  }

  /** A function that runs inside it, wherever it is called. */
  bind<A extends unknown[], R>(work: (...args: A) => R): (...args: A) => R {
    return (...args) => this.#core.enter(this.#number, () => work(...args));
  }

  /** Runs pieces of work one after the other, each in a scope inside that has its key for a name. */
  async sequential<W extends Record<string, (scope: Scope) => unknown>>(children: W): Promise<Results<W>> {
    const results: Record<string, unknown> = {};
    for (const [name, work] of Object.entries(children)) results[name] = await this.scope(name, work);
    return results as Results<W>;
  }

  /**
   * The same side by side: they share this scope's limits. When one is killed the others are waited
   * for, and then the kill is thrown.
   */
  async parallel<W extends Record<string, (scope: Scope) => unknown>>(children: W): Promise<Results<W>> {
    const names = Object.keys(children);
    const work = names.map(async (name) => this.scope(name, children[name]!));
    const ends = await Promise.allSettled(work);
    const failed = ends.filter((end) => end.status === 'rejected').map((end) => end.reason as unknown);
    if (failed.length > 0) throw failed.find((error) => error instanceof DeadstopKilled) ?? failed[0];
    const results = ends.map((end, at) => [names[at], (end as PromiseFulfilledResult<unknown>).value]);
    return Object.fromEntries(results) as Results<W>;
  }

  /** Variables with which another process continues here: see {@link Session.environment}. */
  environment(): Record<string, string> {
    return this.#core.engine.environment(this.#number);
  }
}

type Results<W extends Record<string, (scope: Scope) => unknown>> = { [K in keyof W]: Awaited<ReturnType<W[K]>> };

/** One run of an agent under guard. Made with {@link guard}. */
export class Session<C = undefined> {
  readonly #core: Core;
  readonly #client: C;
  readonly #root: Scope;
  readonly #letGo: (() => void)[] = [];
  #fetch: Fetch | undefined;

  static {
    insideOf = (session) => (#core in session ? session.#core : undefined);
  }

  /** @internal */
  constructor(core: Core, client: C) {
    this.#core = core;
    this.#client = client;
    this.#root = new Scope(core, core.root);
    core.session = this;
    hold(this);
    if (client !== undefined) this.attach(client);
  }

  /** The client, guarded. Its type and its methods are what they were. */
  get client(): C {
    return this.#client;
  }

  /** The agent. */
  get agent(): string {
    return this.#core.engine.agent;
  }

  /** The session's name. */
  get name(): string {
    return this.#core.engine.name;
  }

  /** Whether it is over. */
  get killed(): boolean {
    return this.#core.engine.killed;
  }

  /** Aborted once it is over; its reason is the kill. */
  get signal(): AbortSignal {
    return this.#core.signal(this.#core.root);
  }

  /** The session itself as a scope. */
  get root(): Scope {
    return this.#root;
  }

  /** A guarded `fetch`, for libraries that take one. */
  get fetch(): Fetch {
    return (this.#fetch ??= guardFetch(() => this.#core, (input, init) => globalThis.fetch(input, init), 'any'));
  }

  /** Guards one more client with this session, in place, and gives it back. */
  attach<T>(client: T): T {
    this.#letGo.push(attach(this.#core, client));
    return client;
  }

  /** Whether this session guards a client. */
  guards(client: unknown): boolean {
    return guards(this.#core, client);
  }

  /**
   * Ends the session, for good and at once: every later call rejects, calls in flight are cut, its state
   * is frozen. From anywhere, also from a signal's handler. The first reason stays.
   *
   * It does not block. Await it where there is a server: the promise waits until the server has the
   * kill, for two seconds at most, and never rejects. A file keeps the kill until the server has it.
   */
  kill(reason = ''): Promise<void> {
    // The session ends as a whole, also if it began in a scope.
    return this.#core.kill(0, reason);
  }

  /** Tells that the agent's context was compacted: see {@link Scope.compacted}. */
  compacted(): void {
    this.#core.engine.compacted(this.#core.root);
  }

  /** Runs a function in this session: calls of shared clients are charged to it. */
  run<T>(work: (session: this) => T): T {
    return this.#core.enter(this.#core.root, () => work(this));
  }

  /**
   * A copy of a client that is guarded with this session. The original stays as it is.
   */
  guarded<T extends object>(client: T): T {
    return this.attach(copyOf(client));
  }

  /** Makes the clients what they were. A session that was killed stays dead; guard the client again. */
  restore(): void {
    this.#core.restored = true;
    for (const letGo of this.#letGo.splice(0)) letGo();
    this.#core.engine.restore();
  }

  /** What it has used. A kill freezes it: afterwards only calls in flight are still booked. */
  getState(): State {
    return humps(JSON.parse(this.#core.engine.state()));
  }

  /** How it is. */
  getHealth(): Health {
    return humps(JSON.parse(this.#core.engine.health()));
  }

  /** The windows that providers have reported to the agent, the fullest first. */
  getQuotas(): Quota[] {
    return humps(JSON.parse(this.#core.engine.quotas()));
  }

  /** What happened last, the oldest first. */
  getCaptures(): Capture[] {
    return humps(JSON.parse(this.#core.engine.captures()));
  }

  /** Puts another policy in force, from the next call on. */
  setPolicy(policy: string | URL | object): void {
    mend(() => this.#core.engine.setPolicy(policyOf(policy)));
  }

  /** Sets limits of the session itself, beside those of its policy. The others stay, `null` removes one. */
  limit(limits: { [K in keyof Limits]?: Limits[K] | null }): this {
    this.#root.limit(limits);
    return this;
  }

  /** Calls a function once for each trip. It cannot prevent anything. */
  onTripped(observer: OnTripped): this {
    this.#core.observe(this.#core.root, observer);
    return this;
  }

  /** Calls a function each time the model is steered: `context.advice` is what it is told. */
  onSteer(observer: OnSteer): this {
    this.#core.observeSteers(this.#core.root, observer);
    return this;
  }

  /** Waits, at most so long, until what happened is at the server and on disk. */
  async flush(seconds = 5): Promise<void> {
    await this.#core.engine.flushLater(Math.min(seconds, 1e6) * 1000);
  }

  /**
   * A scope inside the one that this piece of work is in; with a function, what the function gives.
   *
   * The same name in the same place is the same scope: what was spent and seen there stays spent and
   * seen. Limits hold for the sum of all that happens inside.
   */
  scope(name: string, options?: ScopeOptions): Scope;
  scope<T>(name: string, work: (scope: Scope) => T): T;
  scope<T>(name: string, options: ScopeOptions, work: (scope: Scope) => T): T;
  scope<T>(name: string, options?: ScopeOptions | ((scope: Scope) => T), work?: (scope: Scope) => T): Scope | T {
    return open(this.#core, this.#core.current(), name, options, work);
  }

  /**
   * Guards a tool: its calls are admitted before they run and settled by their results. A function
   * that is not `async` is asked about while everything waits, also if there is a server.
   */
  tool<F extends (...args: any[]) => any>(work: F, options?: ToolOptions): F;
  tool<F extends (...args: any[]) => any>(name: string, work: F, options?: ToolOptions): F;
  tool<F extends (...args: any[]) => any>(first: F | string, second?: F | ToolOptions, third?: ToolOptions): F {
    if (typeof first === 'string') return guardTool(this.#core, second as F, { ...third, name: first });
    return guardTool(this.#core, first, (second as ToolOptions | undefined) ?? {});
  }

  /** Admits a tool call, runs it, and settles it: what adapters are made of. */
  runTool<T>(
    name: string,
    told: Record<string, unknown>,
    work: () => T | PromiseLike<T>,
    options?: { server?: string; failed?: (result: T) => boolean },
  ): Promise<T> {
    return runTool(this.#core, name, told, work, options);
  }

  /** Guards an MCP client, in place, and gives it back. `server` names it for the circuit breaker. */
  wrapMcp<T extends object>(client: T, options: { server?: string } = {}): T {
    this.#letGo.push(wrapMcp(this.#core, client, options.server));
    return client;
  }

  /**
   * Variables with which another process, or a worker, continues in this scope: its `guard()` takes
   * agent, session, scope and server from them.
   */
  environment(): Record<string, string> {
    return this.#core.engine.environment(this.#core.current());
  }

  /** Headers with which a request through the gateway is charged to this scope. */
  headers(): Record<string, string> {
    const path = this.#core.engine.path(this.#core.current());
    const scope: Record<string, string> = path.length > 0 ? { 'x-deadstop-scope': path.join('/') } : {};
    return { 'x-deadstop-agent': this.agent, 'x-deadstop-session': this.name, ...scope };
  }
}

/** Opens a session, and guards a client with it. */
export function guardWith<C>(client: C, options: GuardOptions): Session<C> {
  if (client !== undefined) check(client);
  const { env } = process;
  const { agent, session, policy, mode, captures, pricingTable, watchAnswers = true, onTripped, onSteer } = options;
  const inherited = agent === undefined || agent === env['DEADSTOP_AGENT'];
  const server = options.server ?? env['DEADSTOP_SERVER'];
  const core = mend(() => {
    return new Core({
      agent: agent || env['DEADSTOP_AGENT'] || 'agent',
      session: session || (inherited && env['DEADSTOP_SESSION']) || undefined,
      policy: policy === undefined ? undefined : policyOf(policy),
      mode,
      server: server || undefined,
      limits: JSON.parse(limitsOf(options, GUARD)) as object,
      captures,
      prices: pricingTable,
      watch_answers: watchAnswers,
    });
  });
  const base = inherited && session === undefined ? (env['DEADSTOP_SCOPE'] ?? '') : '';
  for (const name of base.split('/').filter(Boolean)) core.root = mend(() => core.engine.scope(core.root, name, '{}'));
  const opened = new Session(core, client);
  if (onTripped !== undefined) opened.onTripped(onTripped);
  if (onSteer !== undefined) opened.onSteer(onSteer);
  return opened;
}

function open<T>(
  core: Core,
  parent: number,
  name: string,
  options: ScopeOptions | ((scope: Scope) => T) = {},
  work?: (scope: Scope) => T,
): Scope | T {
  if (typeof options === 'function') return open(core, parent, name, {}, options);
  const number = mend(() => core.engine.scope(parent, name, limitsOf(options, ['onTripped', 'onSteer'])));
  const scope = new Scope(core, number);
  if (options.onTripped) scope.onTripped(options.onTripped);
  if (options.onSteer) scope.onSteer(options.onSteer);
  return work === undefined ? scope : scope.run(work);
}

/** Limits as the engine reads them. */
function limitsOf(options: object, others: string[]): string {
  const typed: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (LIMITS.includes(name)) {
      // JSON has no such numbers: they would become no limit.
      if (typeof value === 'number' && !Number.isFinite(value)) {
        throw new DeadstopError(`${name}: ${value} is not a limit; leave it out for no limit`);
      }
      typed[underscored(name)] = value;
    }
    else if (!others.includes(name)) {
      throw new DeadstopError(`there is no option \`${name}\`; there are ${[...others, ...LIMITS].join(', ')}`);
    }
  }
  return JSON.stringify(typed);
}

/** A policy as text: a preset's name, a file, a text, or an object. */
function policyOf(policy: string | URL | object): string {
  if (typeof policy !== 'string' && !(policy instanceof URL)) return JSON.stringify(policy);
  if (typeof policy === 'string' && (policy.includes('\n') || !/\.(toml|ya?ml|json)$/.test(policy))) return policy;
  try {
    return readFileSync(typeof policy === 'string' ? policy : fileURLToPath(policy), 'utf8');
  } catch (error) {
    throw new DeadstopError(`cannot read the policy ${String(policy)}: ${(error as Error).message}`, { cause: error });
  }
}

/** The engine's mistakes in this language's words. */
function mend<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof DeadstopError || !(error instanceof Error)) throw error;
    // A session that was killed before: the kill as JSON.
    if (error.message.startsWith('{"killed":')) throw refusalOf(error.message);
    const text = LIMITS.reduce((text, name) => text.replaceAll(underscored(name), hump(name)), error.message);
    throw new DeadstopError(text);
  }
}

/** Makes a clone of it a clear error instead of an empty object. */
function hold(held: object): void {
  Object.defineProperties(held, HELD);
}

const HELD: PropertyDescriptorMap = {
  deadstop: {
    enumerable: true,
    get() {
      throw new DeadstopError(
        'a deadstop session lives in its thread and cannot be cloned or sent to another; there, guard with the variables of session.environment() and a server',
      );
    },
  },
  toJSON: {
    enumerable: false,
    value(this: object) {
      return String(this);
    },
  },
};

// A session's inside: the engine, calls in flight, observers. Users see `Session` and `Scope`.

import { AsyncLocalStorage } from 'node:async_hooks';
import { DeadstopKilled, refusalOf, tripOf } from './errors.js';
import type { DeadstopBlocked, KillContext } from './errors.js';
import { Engine } from './native.js';

/**
 * Is called once for each trip: when a guard refuses a call or ends a scope. It may be async. It cannot
 * prevent anything: what it throws becomes a warning.
 */
export type OnTripped = (context: KillContext) => unknown;

/**
 * Is called each time the model is steered: `context.advice` is what it is told, behind the tool's result
 * or with the next request. It may be async and cannot prevent anything.
 */
export type OnSteer = (context: KillContext) => unknown;

/** How long the promise of a kill waits until the server has it, in milliseconds. */
const LASTING = 2000;

/** How a call ends. */
export const OK = 0;
export const ERROR = 1;
export const CANCELLED = 3;

/** Flags below a call's number: see `engine.rs`. */
const TRIPS = 1;
export const BODY = 2;
const ADVICE = 2;
const FLAGS = 2;

/** Addresses that are known at a time. */
const MOST_DOORS = 100;

/** A call on its way. */
export interface Flight {
  readonly scope: number;
  /** Breaks it off. */
  cut(error: DeadstopKilled): void;
}

interface Entered {
  readonly core: Core;
  readonly scope: number;
}

/** The scopes that this piece of work is in, of any session, the innermost last. */
const entered = new AsyncLocalStorage<readonly Entered[]>();

/** The callbacks that this piece of work is in. */
const telling = new AsyncLocalStorage<readonly OnTripped[]>();

/** The session that this piece of work is in. */
export function currentCore(): Core | undefined {
  return entered.getStore()?.at(-1)?.core;
}

/** What another thread calls. The engine holds it, so it must not hold the session. */
class Bell {
  #core: WeakRef<Core> | undefined;
  readonly ring = (): void => this.#core?.deref()?.woken();

  hangFor(core: Core): void {
    this.#core = new WeakRef(core);
  }
}

export class Core {
  readonly engine: Engine;
  readonly governed: boolean;
  /** The scope in which the session begins. */
  root = 0;
  restored = false;
  readonly #flights = new Set<Flight>();
  readonly #signals = new Map<number, AbortController>();
  readonly #observers: OnTripped[] = [];
  /** Addresses that the engine knows by a number. Clients use the same few over and over. */
  readonly #doors = new Map<string, number>();

  /** The session as users see it. */
  session: object | undefined;

  constructor(options: { server?: string | undefined; captures?: string | undefined; [other: string]: unknown }) {
    const bell = options.server === undefined ? undefined : new Bell();
    this.engine = new Engine(JSON.stringify(options), bell?.ring);
    bell?.hangFor(this);
    this.governed = this.engine.governed;
    // Nothing of the others waits to be sent or written. What is held weakly is collected late.
    if (this.governed || options.captures !== undefined) remember(this);
  }

  /** The scope that this piece of work is in. */
  current(): number {
    const scopes = entered.getStore();
    if (scopes !== undefined) {
      for (let at = scopes.length - 1; at >= 0; at--) {
        const scope = scopes[at]!;
        if (scope.core === this) return scope.scope;
      }
    }
    return this.root;
  }

  /** Runs something in a scope. */
  enter<T>(scope: number, work: () => T): T {
    return entered.run([...(entered.getStore() ?? []), { core: this, scope }], work);
  }

  /** The number of the address that a request goes to. */
  door(family: string, method: string, url: string): number {
    const key = `${family} ${method} ${url}`;
    const known = this.#doors.get(key);
    if (known !== undefined) return known;
    if (this.#doors.size >= MOST_DOORS) this.#doors.clear();
    const number = this.#doors.size;
    const { hostname, pathname } = placeOf(url);
    this.engine.door(number, family, hostname, method, pathname);
    this.#doors.set(key, number);
    return number;
  }

  /** A call that was admitted: its number, with flags below. Throws if it was refused. */
  admitted(decided: number | string): number {
    if (typeof decided === 'string') throw this.refused(decided);
    this.noticed(decided);
    return decided >>> FLAGS;
  }

  /** A call that was settled. Throws if that ended its scope. */
  settled(decided: number | string): void {
    if (typeof decided === 'string') throw this.refused(decided);
    this.noticed(decided);
  }

  /** Looks what has happened if these flags say that something has. */
  noticed(flags: number): void {
    if (flags & TRIPS) this.woken();
  }

  /**
   * A tool's call that was settled: what the model is to be told behind its result, if anything. Throws if
   * that ended its scope.
   */
  ended(decided: number | string): string | null {
    this.settled(decided);
    return (decided as number) & ADVICE ? this.engine.note() : null;
  }

  /** The error for a refusal; what else it has ended is ended first. */
  refused(text: string): DeadstopKilled | DeadstopBlocked {
    const error = refusalOf(text);
    this.tell();
    if (error instanceof DeadstopKilled) this.sweep();
    return error;
  }

  /** Why a scope is over. */
  why(scope: number): DeadstopKilled {
    return refusalOf(this.engine.why(scope)) as DeadstopKilled;
  }

  /** Ends a scope, at once. The promise waits until the server has the kill, and never rejects. */
  async kill(scope: number, reason: string): Promise<void> {
    this.engine.kill(scope, reason);
    this.sweep();
    this.tell();
    if (this.governed) await this.engine.flushLater(LASTING);
  }

  /** Something happened, maybe on another thread: calls are cut and callbacks called. */
  woken(): void {
    this.sweep();
    this.tell();
  }

  begin(flight: Flight): void {
    this.#flights.add(flight);
  }

  /** Whether it was on its way until now. */
  over(flight: Flight): boolean {
    return this.#flights.delete(flight);
  }

  /** The signal of a scope: aborted once it is over. */
  signal(scope: number): AbortSignal {
    let controller = this.#signals.get(scope);
    // A session whose agent was cleared goes on with another signal.
    if (controller === undefined || (controller.signal.aborted && !this.engine.isOver(scope))) {
      controller = new AbortController();
      this.#signals.set(scope, controller);
      this.#abort();
    }
    return controller.signal;
  }

  observe(scope: number, observer: OnTripped): void {
    this.engine.observe(scope, this.#observers.push(observer) - 1);
  }

  observeSteers(scope: number, observer: OnSteer): void {
    this.engine.observeSteers(scope, this.#observers.push(observer) - 1);
  }

  /** Cuts every call in a scope that is over. */
  sweep(): void {
    for (const flight of this.#flights) {
      if (!this.engine.isStopped(flight.scope)) continue;
      this.#flights.delete(flight);
      flight.cut(this.why(flight.scope));
    }
    this.#abort();
  }

  #abort(): void {
    for (const [scope, { signal }] of this.#signals) {
      if (!signal.aborted && this.engine.isOver(scope)) {
        this.#signals.get(scope)!.abort(this.why(scope));
      }
    }
  }

  /** Calls the callbacks of trips. A callback is not called for a trip that it causes itself. */
  tell(): void {
    const trips = JSON.parse(this.engine.takeTrips()) as { observer: number; why: unknown }[];
    const running = telling.getStore() ?? [];
    for (const { observer, why } of trips) {
      const callback = this.#observers[observer];
      if (callback === undefined || running.includes(callback)) continue;
      try {
        const said = telling.run([...running, callback], () => callback(tripOf(why).context));
        if (said instanceof Promise) said.catch(warn);
      } catch (error) {
        warn(error);
      }
    }
  }
}

function placeOf(url: string): { hostname: string; pathname: string } {
  try {
    return new URL(url);
  } catch {
    // `fetch` will say so.
    return { hostname: '', pathname: url };
  }
}

function warn(error: unknown): void {
  const told = error instanceof Error ? error : new Error(String(error));
  process.emitWarning(`a callback threw ${told.name}: ${told.message}`, 'DeadstopWarning');
}

const alive = new Set<WeakRef<Core>>();
const gone = new FinalizationRegistry<WeakRef<Core>>((core) => alive.delete(core));
let leaving = false;

function remember(core: Core): void {
  const weak = new WeakRef(core);
  alive.add(weak);
  gone.register(core, weak);
  if (leaving) return;
  leaving = true;
  // Sends what waits, for a second at most.
  process.on('exit', () => {
    for (const core of alive) core.deref()?.engine.flush(1000);
  });
}

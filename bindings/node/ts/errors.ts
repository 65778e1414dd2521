// What is thrown, and what callbacks are called with.

/** Where a guard tripped, and what had been spent by then: what `onTripped` and `onSteer` are called with. */
export interface KillContext {
  /** The scope whose guard tripped, as a path: `agent/session/crew/researcher`. */
  readonly who: string;
  /** The same path as its names, the agent first. */
  readonly path: readonly string[];
  /** Its kind. */
  readonly kind: 'project' | 'agent' | 'session' | 'nested';
  /** How many scopes are above it inside the session: 0 for the session itself. */
  readonly depth: number;
  /**
   * Why, as a stable code: `input_exceeded`, `repetition`, `session_killed`. After a kill later calls
   * have the code of what killed.
   */
  readonly reason: string;
  /** With those of the answer that tripped. */
  readonly inputTokensSpent: number;
  /** With those of the answer that tripped. */
  readonly outputTokensSpent: number;
  /** Milliseconds since that scope was opened. */
  readonly elapsedMs: number;
  /** Input tokens of the whole session. */
  readonly accumulatedInputTokens: number;
  /** Output tokens of the whole session. */
  readonly accumulatedOutputTokens: number;
  /** Which guard. */
  readonly guard: string;
  /** What is done about it. */
  readonly verdict: 'warn' | 'steer' | 'ask' | 'block' | 'kill';
  /** One sentence for people. */
  readonly message: string;
  /** What the model is told, where a guard steers it or says more than no. */
  readonly advice: string | null;
}

/** A guard firing: its context, and what it measured. */
export interface Trip {
  /** Which guard. */
  readonly guard: string;
  /** What is done about it. */
  readonly verdict: 'warn' | 'steer' | 'ask' | 'block' | 'kill';
  /** The engine's code. It is `reason`, except for calls after a kill (`session_killed_budget`). */
  readonly code: string;
  /** One sentence for people. */
  readonly explain: string;
  readonly measured: unknown;
  readonly limit: unknown;
  /** The incident at the server, if it became one. */
  readonly incident: string | null;
  /** What the model is told, or should be told. */
  readonly advice: string | null;
  readonly context: KillContext;
  /** The stable code. */
  readonly reason: string;
}

/** Something that is used wrongly: a policy, a name, a second wrap of one client. */
export class DeadstopError extends Error {
  override readonly name: string = 'DeadstopError';
}

/** This call may not run; others may. An agent may learn from it. */
export class DeadstopBlocked extends DeadstopError {
  override readonly name = 'DeadstopBlocked';
  readonly code = 'DEADSTOP_BLOCKED';
  readonly trip: Trip;

  constructor(message: string, trip: Trip) {
    super(message);
    this.trip = trip;
  }

  /** Who, what was spent, for how long, why, and how deep. */
  get context(): KillContext {
    return this.trip.context;
  }

  /** The stable code: `denied`, `paused`. */
  get reason(): string {
    return this.trip.reason;
  }
}

/**
 * A scope is over: no call in it or below it may run. Let it propagate; catch it at the top, if at all.
 *
 * It is a `TypeError`, which p-retry does not retry, and has `bail`, which async-retry looks for. A
 * library that retries every error gets it again, at once: give it a predicate, see the README.
 */
export class DeadstopKilled extends TypeError {
  override readonly name = 'DeadstopKilled';
  readonly code = 'DEADSTOP_KILLED';
  /** For code that looks before it tries again. */
  readonly retryable = false;
  /** The same in other words. */
  readonly isRetryable = false;
  /** The same for async-retry. */
  readonly bail = true;
  readonly trip: Trip;

  constructor(message: string, trip: Trip) {
    super(message);
    this.trip = trip;
  }

  /** Who, what was spent, for how long, why, and how deep. */
  get context(): KillContext {
    return this.trip.context;
  }

  /** The stable code: `max_steps`, `repetition`, `session_killed`. */
  get reason(): string {
    return this.trip.reason;
  }
}

/** The engine's words have underscores, JavaScript's have humps. */
export function humps<T>(value: unknown): T {
  if (Array.isArray(value)) return value.map(humps) as T;
  if (value === null || typeof value !== 'object') return value as T;
  const told: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) told[hump(key)] = humps(inner);
  return told as T;
}

export function hump(word: string): string {
  return word.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

export function underscored(word: string): string {
  return word.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** What the engine tells of a trip. */
export function tripOf(why: unknown): Trip {
  const trip = humps<Trip & { context: KillContext }>(why);
  const { guard, verdict, explain: message, advice = null } = trip;
  const context = { ...trip.context, guard, verdict, message, advice };
  return { ...trip, advice, context, reason: trip.context.reason };
}

/** The error for a refusal, which comes as JSON. */
export function refusalOf(text: string): DeadstopKilled | DeadstopBlocked {
  const { killed, message, why } = JSON.parse(text) as { killed: boolean; message: string; why: unknown };
  const trip = tripOf(why);
  return killed ? new DeadstopKilled(message, trip) : new DeadstopBlocked(message, trip);
}

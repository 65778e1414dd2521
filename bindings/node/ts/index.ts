// Brings a runaway AI agent to a dead stop, inside its own process.

import { guardWith } from './session.js';
import type { GuardOptions, Session } from './session.js';

export { share } from './clients.js';
export type { OnSteer, OnTripped } from './core.js';
export { DeadstopBlocked, DeadstopError, DeadstopKilled } from './errors.js';
export type { KillContext, Trip } from './errors.js';
export type { Fetch } from './fetching.js';
export { Scope, Session, currentSession } from './session.js';
export type { Capture, Figures, GuardOptions, Health, Limits, Quota, ScopeOptions, State } from './session.js';
export type { ToolOptions } from './tools.js';

/**
 * Puts a client of OpenAI or Anthropic under guard, in place. `session.client` is that client, used as
 * before; a second guard on it is an error until `session.restore()`.
 *
 * ```ts
 * const session = guard(new OpenAI(), { agent: 'researcher', policy: 'strict' });
 * await session.client.chat.completions.create({ model: 'gpt-4o', messages });
 * session.kill('that is enough');
 * ```
 */
export function guard<C extends object>(client: C, options: GuardOptions = {}): Session<C> {
  // A client that is missing is an error: it would guard nothing.
  return guardWith((client as C | undefined) ?? (null as unknown as C), options);
}

/** A session without a client: for tools alone, or for clients that are attached later. */
export function session(options: GuardOptions = {}): Session {
  return guardWith(undefined, options);
}

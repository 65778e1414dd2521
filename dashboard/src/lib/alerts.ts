// What a target of alerts can hear of.
import type { Schemas } from './api';

export const EVENTS: Schemas['AlertOn'][] = ['kill', 'trip', 'budget_warning', 'breaker_open', 'approval', 'degraded'];

/** What a target hears of: what it was told to, and everything if it is new. */
export function subscribed(target: { events: string[] } | null): string[] {
  return [...(target?.events ?? EVENTS)];
}

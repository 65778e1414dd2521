// How near something is to being stopped: what its guards measure against their limits, as the server tells.
import type { Schemas } from './api';
import { count, duration, score, usd, words } from './format';

export interface Limit {
  /** What is limited, in words. */
  what: string;
  used: string;
  most: string;
  /** Used over allowed. */
  ratio: number;
  /** The parts of a score, in short: `P 2 · R 1 · T 0`. */
  parts: string;
  /** Whether it is about patterns, and not about how much was used. */
  pattern: boolean;
}

type Measured = Schemas['Limit'];

/** What guards measure, in words; what is not named here is called as the server calls it. */
const NAMES: Record<string, string> = {
  cost_this_hour: 'cost this hour', cost_today: 'cost today', cost_a_minute: 'cost a minute',
  calls_without_news: 'repeated calls', answers_that_repeat: 'answers that repeat',
  destructive_calls: 'destructive calls', destroyed_same_target: 'destroyed on one target',
  blocks_in_a_row: 'blocks in a row', faults_in_a_row: 'faults in a row', failures_in_a_row: 'failures in a row',
  score: 'similarity score', circuit_open: 'circuit open for', circuit_half_open: 'circuit half open, trials',
};
/** Guards that compare calls with each other. */
export const PATTERNS = new Set(['loop', 'similarity', 'text_loop']);
const BEHAVIOUR = new Set([...PATTERNS, 'destructive', 'breaker', 'strikes']);
const WRITE: Record<string, (amount: number) => string> = { usd, ms: duration, score, tokens: count, count };

function one(measured: Measured): Limit {
  const write = WRITE[measured.unit] ?? count;
  const name = NAMES[measured.what] ?? words(measured.what).toLowerCase();
  return {
    what: measured.server ? `${name}, ${measured.server}` : name,
    used: write(measured.measured),
    most: write(measured.limit),
    ratio: measured.share,
    parts: measured.signals.map((signal) => `${signal.name.includes('prompt') ? 'P' : signal.name.includes('response') ? 'R' : 'T'} ${signal.count}×${score(signal.weight)}`).join(' · '),
    pattern: BEHAVIOUR.has(measured.guard),
  };
}

/** Rows in the order in which they stood before, new ones behind them: nothing moves under a finger. */
export function held<T>(fresh: T[], before: T[], key: (row: T) => string): T[] {
  const place = new Map(before.map((row, index) => [key(row), index]));
  const at = (row: T) => place.get(key(row)) ?? before.length;
  return fresh.map((row, index) => ({ row, index })).sort((a, b) => at(a.row) - at(b.row) || a.index - b.index).map(({ row }) => row);
}

/** The limits of a scope as they are shown, the nearest first. */
export function limits(measured: Measured[]): Limit[] {
  return measured.map(one);
}

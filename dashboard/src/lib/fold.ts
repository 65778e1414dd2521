// A session over time: calls in their order, with long silences folded, and real times kept.

export interface Timed {
  at_ms: number;
  duration_ms: number | null;
}

export type Item<T> = { kind: 'call'; call: T; index: number } | { kind: 'gap'; ms: number; index: number };

const SHORTEST = 15_000;
/** Ten minutes of nothing are folded in any session. */
const LONGEST = 600_000;

function ends(call: Timed): number {
  return call.at_ms + (call.duration_ms ?? 0);
}

/** Silences before each call: none before the first, none while an earlier call still runs. */
export function silences(calls: Timed[]): number[] {
  let end = -Infinity;
  return calls.map((call) => {
    const silence = end === -Infinity ? 0 : Math.max(0, call.at_ms - end);
    end = Math.max(end, ends(call));
    return silence;
  });
}

/** From how long on a silence is folded: much longer than is usual in this session, and not short. */
export function foldFrom(calls: Timed[]): number {
  const all = silences(calls).slice(1).sort((a, b) => a - b);
  const middle = all[Math.floor((all.length - 1) / 2)] ?? 0;
  return Math.min(LONGEST, Math.max(SHORTEST, middle * 8));
}

/** Calls with a mark where a silence was folded. */
export function folded<T extends Timed>(calls: T[], from = foldFrom(calls)): Item<T>[] {
  const items: Item<T>[] = [];
  silences(calls).forEach((silence, index) => {
    if (silence >= from) items.push({ kind: 'gap', ms: silence, index });
    items.push({ kind: 'call', call: calls[index]!, index });
  });
  return items;
}

export interface Stretch {
  /** From 0 to 1. */
  left: number;
  right: number;
}

/** Where each call lies on a line from 0 to 1 on which every folded silence is equally short. */
export function stretched(calls: Timed[], from = foldFrom(calls)): { calls: Stretch[]; gaps: number[] } {
  const first = calls[0];
  if (!first) return { calls: [], gaps: [] };
  const quiet = silences(calls);
  let cut = 0;
  const gaps: [number, number][] = [];
  const places = calls.map((call, index) => {
    const silence = quiet[index]!;
    if (silence >= from) {
      gaps.push([index, call.at_ms - first.at_ms - cut - silence]);
      cut += silence;
    }
    return [call.at_ms - first.at_ms - cut, ends(call) - first.at_ms - cut] as const;
  });
  const busy = places.reduce((most, [, end]) => Math.max(most, end), 1);
  // All folds together take at most a third of the line.
  const fold = Math.min(0.02, 0.33 / Math.max(1, gaps.length));
  const scale = (1 - fold * gaps.length) / busy;
  let passed = 0;
  const stretches = places.map(([start, end], index) => {
    if (gaps[passed]?.[0] === index) passed += 1;
    const left = start * scale + passed * fold;
    return { left, right: Math.min(1, left + (end - start) * scale) };
  });
  return { calls: stretches, gaps: gaps.map(([, start], index) => start * scale + index * fold + fold / 2) };
}

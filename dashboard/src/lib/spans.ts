// Spans of time that end now, for filters.

const HOUR = 3_600_000;

export const SPANS: [id: string, name: string, ms: number][] = [
  ['1h', 'Last hour', HOUR],
  ['24h', 'Last 24 hours', 24 * HOUR],
  ['7d', 'Last 7 days', 7 * 24 * HOUR],
  ['30d', 'Last 30 days', 30 * 24 * HOUR],
];

/** When a span began; undefined if there is no such span. */
export function since(id: string, now: number): number | undefined {
  const span = SPANS.find(([known]) => known === id);
  return span ? now - span[2] : undefined;
}

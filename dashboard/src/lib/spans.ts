// Spans of time: those that end now, and any two moments. Which one is shown stands in the address.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export const SPANS: [id: string, name: string, ms: number][] = [
  ['15m', 'Last 15 minutes', 15 * MINUTE],
  ['1h', 'Last hour', HOUR],
  ['24h', 'Last 24 hours', DAY],
  ['7d', 'Last 7 days', 7 * DAY],
  ['30d', 'Last 30 days', 30 * DAY],
  ['90d', 'Last 90 days', 90 * DAY],
];

export interface Range {
  /** One of the spans, `between`, or empty for any time. */
  id: string;
  name: string;
  from?: number;
  to?: number;
}

const moment = (text: string) => (/^\d+$/.test(text) ? Number(text) : undefined);

/** The span that an address names: `span`, or `from` and `to`; otherwise the usual one of a page. */
export function range(param: (name: string) => string, usual: string, now: number): Range {
  const [from, to] = [moment(param('from')), moment(param('to'))];
  if (param('span') === 'between' || from !== undefined || to !== undefined) return { id: 'between', name: 'Between', from, to };
  const named = (id: string) => SPANS.find(([known]) => known === id);
  const span = named(param('span')) ?? named(usual);
  return span ? { id: span[0], name: span[1], from: now - span[2] } : { id: '', name: 'Any time' };
}

export type Step = '10s' | 'minute' | 'hour' | 'day';
export const WIDTHS: Record<Step, number> = { '10s': 10_000, minute: MINUTE, hour: HOUR, day: DAY };

/** Steps such that a chart of the span has a hundred bars or so. */
export function stepOf(from: number, to: number): Step {
  const span = to - from;
  if (span <= 20 * MINUTE) return '10s';
  if (span <= 3 * HOUR) return 'minute';
  return span <= 4 * DAY ? 'hour' : 'day';
}

/** A chart's span: it ends now if the range does not end earlier, and begins with a whole step. */
export function charted(range: Range, now: number): { from: number; to: number; step: Step; width: number } {
  const to = Math.min(range.to ?? now, now);
  const begin = Math.min(range.from ?? to - 30 * DAY, to);
  const step = stepOf(begin, to);
  const width = WIDTHS[step];
  return { from: Math.floor(begin / width) * width, to, step, width };
}

/** The address of the calls that were made in a span. */
export function callsOf(from: number, to: number, agent = ''): string {
  return `/requests?${new URLSearchParams({ ...(agent ? { agent } : {}), from: String(Math.floor(from)), to: String(Math.ceil(to)) })}`;
}

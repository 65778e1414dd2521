// What a guard measured, written with its unit.
import { count, duration, score, usd } from './format';

interface Measure {
  unit?: string;
  value?: unknown;
}

function written(measure: Measure | undefined): string | null {
  if (typeof measure?.value !== 'number') return null;
  switch (measure.unit) {
    case 'money': return usd(measure.value / 1e9);
    case 'time': return duration(measure.value);
    case 'score': return score(measure.value);
    case 'tokens': return `${count(measure.value)} tokens`;
    default: return count(measure.value);
  }
}

export interface Measured {
  measured: string;
  limit: string;
  /** Twice the limit, where a bar about it ends. */
  twice: string;
  /** What was measured, over what was allowed. */
  share: number;
}

/** Both numbers of a trip, if they are numbers. */
export function measured(trip: unknown): Measured | null {
  const found = trip as { measured?: Measure; limit?: Measure } | null;
  const [one, two] = [written(found?.measured), written(found?.limit)];
  if (one === null || two === null) return null;
  const limit = found?.limit?.value as number;
  const share = limit > 0 ? (found?.measured?.value as number) / limit : 2;
  return { measured: one, limit: two, twice: written({ ...found?.limit, value: 2 * limit }) ?? '', share };
}

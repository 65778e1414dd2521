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

/** Both numbers of a trip, if they are numbers. */
export function measured(trip: unknown): { measured: string; limit: string } | null {
  const found = trip as { measured?: Measure; limit?: Measure } | null;
  const [one, two] = [written(found?.measured), written(found?.limit)];
  return one !== null && two !== null ? { measured: one, limit: two } : null;
}

// Silences in a session are folded, and times stay real.
import { expect, test } from 'vitest';
import { folded, foldFrom, silences, stretched } from '../src/lib/fold';

const at = (at_ms: number, duration_ms: number | null = 100) => ({ at_ms, duration_ms });

test('a silence counts from the end of what ran last', () => {
  expect(silences([at(0, 1000), at(1500), at(1550, 10_000), at(2000), at(20_000)])).toEqual([0, 500, 0, 0, 8450]);
});

test('only what is long for this session is folded', () => {
  const busy = Array.from({ length: 10 }, (_, index) => at(index * 1000));
  expect(folded(busy).every((item) => item.kind === 'call')).toBe(true);
  const later = [...busy, at(3_600_000)];
  expect(folded(later).filter((item) => item.kind === 'gap')).toEqual([{ kind: 'gap', ms: 3_590_900, index: 10 }]);
  // A session that always waits a minute does not fold every minute.
  const slow = Array.from({ length: 10 }, (_, index) => at(index * 60_000));
  expect(foldFrom(slow)).toBeGreaterThan(60_000);
  expect(folded(slow)).toHaveLength(10);
});

test('nothing, one, and a call that never ran', () => {
  expect(folded([])).toEqual([]);
  expect(stretched([])).toEqual({ calls: [], gaps: [] });
  expect(folded([at(5, null)])).toHaveLength(1);
  expect(stretched([at(5, null)]).calls).toEqual([{ left: 0, right: 0 }]);
});

test('on the line calls keep their order and stay on it, however long the silence', () => {
  const calls = [at(0), at(1000), at(90_000_000), at(90_001_000, 500), at(900_000_000)];
  const line = stretched(calls);
  expect(line.gaps).toHaveLength(2);
  let before = -1;
  for (const place of line.calls) {
    expect(place.left).toBeGreaterThanOrEqual(before);
    expect(place.right).toBeGreaterThanOrEqual(place.left);
    expect(place.right).toBeLessThanOrEqual(1);
    before = place.left;
  }
  // What happened before a long silence is still wide enough to be seen.
  expect(line.calls[1]!.left).toBeGreaterThan(0.2);
});

test('twenty thousand calls are quick', () => {
  const many = Array.from({ length: 20_000 }, (_, index) => at(index * 700 + (index % 97 === 0 ? 60_000 : 0), 300));
  const began = performance.now();
  folded(many);
  stretched(many);
  expect(performance.now() - began).toBeLessThan(500);
});

// How things are written.
import { describe, expect, test } from 'vitest';
import { ago, count, duration, line, middle, plain, plural, score, scoreOf, short, usd, words } from '../src/lib/format';

test.each([
  [0, '$0.00'], [0.0000012, '$0.0000012'], [0.0042, '$0.0042'], [0.0421, '$0.042'], [0.5, '$0.50'], [1, '$1.00'], [12.345, '$12.35'], [12400.4, '$12,400'], [-2.5, '-$2.50'], [Number.NaN, '–'],
])('usd(%d) is %s', (amount, expected) => expect(usd(amount)).toBe(expected));

test.each([[0, '0'], [999, '999'], [1000, '1.0k'], [9949, '9.9k'], [12_400, '12k'], [999_600, '1.0M'], [3_400_000, '3.4M'], [2e9, '2.0G']])(
  'short(%d) is %s', (number, expected) => expect(short(number)).toBe(expected));

test.each([
  [0, '0 ms'], [840, '840 ms'], [1000, '1.0 s'], [12_400, '12 s'], [59_940, '60 s'], [60_000, '1 min'], [185_000, '3 min 5 s'], [3_599_900, '1 h'], [7_800_000, '2 h 10 min'], [86_400_000 * 3 + 3_600_000 * 4, '3 d 4 h'], [-1, '–'],
])('duration(%d) is %s', (ms, expected) => expect(duration(ms)).toBe(expected));

test('how long ago', () => {
  const now = 1e12;
  for (const [before, expected] of [[0, 'now'], [5000, '5 s ago'], [65_000, '1 min ago'], [7_300_000, '2 h ago'], [3 * 86_400_000, '3 d ago']] as const) {
    expect(ago(now - before, now)).toBe(expected);
  }
});

test('scores are written as on the incident page', () => {
  expect(score(7)).toBe('7.0');
  expect(scoreOf(7, 5)).toBe('7.0/5');
  expect(scoreOf(7.25, 5.5)).toBe('7.3/5.5');
});

test('counts and words', () => {
  expect(count(1234567.4)).toBe('1,234,567');
  expect(plural(1, 'call')).toBe('1 call');
  expect(plural(2, 'call')).toBe('2 calls');
  expect(words('kill_switch')).toBe('Kill switch');
});

describe('texts from outside', () => {
  test('what hides or turns text around is written out', () => {
    expect(plain('a\u202Eb')).toBe('a⟨U+202E⟩b');
    expect(plain('\u0000\u001b[31m')).toBe('⟨U+0000⟩⟨U+001B⟩[31m');
    expect(plain('zero\u200bwidth \u{e0041}')).toBe('zero⟨U+200B⟩width ⟨U+E0041⟩');
  });
  test('what is readable stays: new lines, tabs, markup, other scripts', () => {
    const text = '<script>alert(1)</script>\n\tשלום 👾 é';
    expect(plain(text)).toBe(text);
  });
  test('one line, not too long, and quick for megabytes', () => {
    expect(line('a\n b\t c')).toBe('a b c');
    expect(line('x'.repeat(500), 10)).toBe(`${'x'.repeat(9)}…`);
    // Compared with reading all of it, in the same run.
    const text = 'y '.repeat(2_000_000);
    const took = (work: () => unknown): number => {
      const began = performance.now();
      work();
      return performance.now() - began;
    };
    const whole = took(() => text.replace(/\s+/g, ' '));
    expect(took(() => line(text, 80))).toBeLessThan(whole);
  });
});

test('ids are cut in the middle, and keep both ends', () => {
  expect(middle('short', 10)).toBe('short');
  expect(middle('0123456789', 10)).toBe('0123456789');
  expect(middle('0123456789abcdef', 9)).toBe('0123…cdef');
  expect(middle('0123456789abcdef', 10)).toBe('01234…cdef');
  expect(middle('a\u202eb', 20)).toBe('a⟨U+202E⟩b');
});

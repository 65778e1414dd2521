// The small parts that pages rely on.
import { expect, test } from 'vitest';
import { EVENTS, subscribed } from '../src/lib/alerts';
import { address, type Call } from '../src/lib/api';
import { LineReader } from '../src/lib/backtest';
import { held, limits } from '../src/lib/danger';
import { compared, likeness } from '../src/lib/diff';
import { found } from '../src/lib/find';
import { differences, inForce, scopePart, sectionsOf } from '../src/lib/guards';
import { measured } from '../src/lib/measure';
import { lines, meant, spoken, type Target } from '../src/lib/palette';
import { ledgers, tree } from '../src/lib/replay';
import { Spending, steps } from '../src/lib/spend';

const call = (more: Partial<Call>): Call => ({
  id: '1', agent: 'a', session: 's', session_number: '1', nested: null, position: 1, kind: 'model', name: 'm', server: null, at_ms: 0, first_ms: null, cause: null, duration_ms: 10, verdict: 'allow', guard: null, reason: null, status: 'ok',
  input_tokens: 10, output_tokens: 5, cache_read_tokens: 0, cache_write_tokens: 0, cost_usd: 0.1, incident: null, ...more,
});

test('addresses carry what they are given and nothing more', () => {
  expect(address('/api/sessions/{agent}/{session}', { agent: 'a/b', session: 'ü' })).toBe('/api/sessions/a%2Fb/%C3%BC');
  expect(address('/api/calls', {}, { limit: 5, agent: '', from: undefined, to: null, acknowledged: false })).toBe('/api/calls?limit=5&acknowledged=false');
});

test('a new alert target hears of stops, warnings, soft limits and approvals', () => {
  expect(subscribed(null)).toEqual(EVENTS);
  expect(EVENTS).toEqual(expect.arrayContaining(['kill', 'trip', 'budget_warning', 'approval']));
  expect(subscribed({ events: ['kill'] })).toEqual(['kill']);
});

test('limits are told in their own units, a score with its parts', () => {
  const gauge = { guard: 'budget', what: 'cost_today', measured: 0.5, limit: 1, unit: 'usd', share: 0.5, signals: [], server: null };
  const signals = [{ name: 'similar_prompts', count: 2, weight: 1, score: 2 }, { name: 'similar_responses', count: 1, weight: 2, score: 2 }, { name: 'repeated_tool_calls', count: 0, weight: 1.5, score: 0 }];
  const shown = limits([
    gauge,
    { ...gauge, guard: 'similarity', what: 'score', measured: 4, limit: 10, unit: 'score', signals },
    { ...gauge, guard: 'breaker', what: 'failures_in_a_row', measured: 2, limit: 5, unit: 'count', server: 'files' },
    { ...gauge, guard: 'time', what: 'time', measured: 5000, limit: 60_000, unit: 'ms' },
    { ...gauge, guard: 'new', what: 'never_heard_of', measured: 1, limit: 2, unit: 'count' },
  ]);
  expect(shown.map((one) => `${one.what} ${one.used} of ${one.most}`)).toEqual([
    'cost today $0.50 of $1.00', 'similarity score 4.0 of 10.0', 'failures in a row, files 2 of 5', 'time 5.0 s of 1 min', 'never heard of 1 of 2',
  ]);
  expect(shown[1]?.parts).toBe('P 2×1.0 · R 1×2.0 · T 0×1.5');
  expect(shown.map((one) => one.pattern)).toEqual([false, true, true, false, false]);
});

test('rows that are held stay where they were, with what is new of them', () => {
  const row = (name: string, cost = 0) => ({ name, cost });
  const key = (one: { name: string }) => one.name;
  expect(held([row('c', 9), row('x'), row('a', 5), row('y')], [row('a'), row('b'), row('c')], key)).toEqual([row('a', 5), row('c', 9), row('x'), row('y')]);
  expect(held([row('b'), row('a')], [], key)).toEqual([row('b'), row('a')]);
});

test('differences are by words, and likeness is a share', () => {
  const pieces = compared('check order 1000 again', 'check order 1001 again');
  expect(pieces).toEqual([{ kind: 'same', text: 'check order ' }, { kind: 'removed', text: '1000' }, { kind: 'added', text: '1001' }, { kind: 'same', text: ' again' }]);
  expect(likeness(pieces)).toBeGreaterThan(0.75);
  expect(compared('', '')).toEqual([]);
  expect(likeness(compared('a b', 'c d'))).toBeLessThan(0.5);
  for (const [a, b] of [['a b c d', 'x b y d'], ['one two', 'two one'], ['', 'all new'], ['word '.repeat(3000), 'other '.repeat(3000)]] as const) {
    const found = compared(a, b);
    expect(found.filter((piece) => piece.kind !== 'added').map((piece) => piece.text).join('')).toBe(a);
    expect(found.filter((piece) => piece.kind !== 'removed').map((piece) => piece.text).join('')).toBe(b);
  }
});

test('finding: beginnings before middles, all words must be there', () => {
  const things = ['parrot', 'my parrot', 'apparrot', 'other'].map((name) => ({ kind: 'Agent', name, address: name }));
  expect(found('par', things, 9).map((thing) => thing.name)).toEqual(['parrot', 'my parrot', 'apparrot']);
  expect(found('my par', things, 9).map((thing) => thing.name)).toEqual(['my parrot']);
  expect(found('', things, 2)).toHaveLength(2);
  expect(found('agent', things, 9)).toHaveLength(4);
});

test('settings without a description are shown all the same', () => {
  const policy = { mode: 'enforce', loop: { enabled: true, threshold: 5, brand_new: 1 }, novel: { enabled: false }, agent: { loop: { enabled: false } } };
  const sections = sectionsOf(policy);
  expect(sections.map((section) => section.key)).toEqual(['loop', 'novel']);
  expect(sections[0]?.fields.map((field) => field.key)).toEqual(['enabled', 'threshold', 'brand_new']);
  expect(scopePart(policy, 'agent')).toEqual({ loop: { enabled: false } });
  expect(scopePart(policy, 'nested')).toBeNull();
  expect([inForce({ enabled: true }), inForce({ max_steps: null, action: 'block' }), inForce({ max_steps: 3, action: 'block' }), inForce({ allow: [], action: 'block' })]).toEqual([true, false, true, false]);
});

test('what was changed is told setting by setting', () => {
  expect(differences({ a: { b: 1, c: [1] } }, { a: { b: 2, c: [1], d: null } })).toEqual([
    { path: 'a.b', before: 1, after: 2 }, { path: 'a.d', before: undefined, after: null },
  ]);
});

test('measures have their units', () => {
  expect(measured({ measured: { unit: 'money', value: 520_000_000 }, limit: { unit: 'money', value: 500_000_000 } })).toEqual({ measured: '$0.52', limit: '$0.50', twice: '$1.00', share: 1.04 });
  expect(measured({ measured: { unit: 'count', value: 3 }, limit: { unit: 'count', value: 3 } })).toEqual({ measured: '3', limit: '3', twice: '6', share: 1 });
  expect(measured({ measured: { unit: 'count', value: 1 }, limit: { unit: 'count', value: 0 } })?.share).toBe(2);
  expect(measured({ measured: { unit: 'none' }, limit: {} })).toBeNull();
  expect(measured(null)).toBeNull();
});

test('ledgers add up, and what was refused was not made', () => {
  const all = ledgers([call({}), call({ kind: 'tool', at_ms: 100 }), call({ kind: 'tool', at_ms: 200, verdict: 'kill', status: null, duration_ms: null, cost_usd: 0 })]);
  expect(all.map((one) => [one.modelCalls, one.steps])).toEqual([[1, 0], [1, 1], [1, 1]]);
  expect(all[2]?.cost).toBeCloseTo(0.2);
  expect(all[2]?.elapsed).toBe(200);
});

test('scopes make a tree, and each counts what is below it', () => {
  const root = tree('s', [call({}), call({ nested: 'crew/worker' }), call({ nested: 'crew', verdict: 'block' })]);
  expect(root.total).toMatchObject({ calls: 3, stops: 1 });
  expect(root.children[0]).toMatchObject({ name: 'crew', total: { calls: 2 } });
  expect(root.children[0]?.children[0]?.name).toBe('worker');
});

test('spending is seeded from the server\'s sums and grown from totals', () => {
  const spending = new Spending(60_000);
  spending.seed([{ at_ms: 1000, cost_usd: 2 }]);
  spending.total(2000, 10);
  spending.total(3000, 13);
  spending.total(4000, 12);
  expect(spending.perMinute(5000)).toBe(5);
  expect(steps(spending.all, 0, 4000, 1000).values).toEqual([0, 2, 0, 3, 0]);
});

test('lines of an answer, however they arrive', () => {
  const reader = new LineReader();
  expect(reader.push('{"a":1}\n{"b"')).toEqual(['{"a":1}']);
  expect(reader.push(':2}\n\n{"c":3}')).toEqual(['{"b":2}']);
  expect(reader.end()).toEqual(['{"c":3}']);
});

test('the palette reads a verb and offers only what it can be done to', () => {
  expect(spoken('stop night')).toEqual({ verb: 'stop', rest: 'night' });
  expect(spoken('top up s1')).toEqual({ verb: 'top up', rest: 's1' });
  expect(spoken('allow rm')).toEqual({ verb: 'allow once', rest: 'rm' });
  expect(spoken('stopper')).toEqual({ verb: null, rest: 'stopper' });
  const session = (name: string, state: string): Target => ({ kind: 'Session', name, address: `/sessions/a/${name}`, state, subject: { kind: 'session', agent: 'a', session: name } });
  const targets: Target[] = [
    { kind: 'Place', name: 'Now', address: '/' }, session('nightly', 'running'), session('old-night', 'killed'), session('held', 'paused'),
    { kind: 'Agent', name: 'bot', address: '/agents/bot', state: 'stopped', subject: { kind: 'agent', agent: 'bot' } },
    { kind: 'Refused', name: 'rm', address: '/approvals', code: 'K7' },
    { kind: 'All', name: 'everything', address: '', state: 'running', subject: { kind: 'everything' } },
  ];
  const said = (typed: string) => lines(typed, targets, 20).map((one) => `${one.kind} ${one.name} ${one.order?.what ?? one.address}`);
  expect(said('stop')).toEqual(['Session nightly kill', 'Session held kill', 'All everything kill']);
  expect(said('stop night')).toEqual(['Session nightly kill']);
  expect(said('pause')).toEqual(['Session nightly pause', 'All everything pause']);
  expect(said('resume')).toEqual(['Session old-night reset', 'Session held resume', 'Agent bot activate']);
  expect(said('top up nightly')).toEqual(['Session nightly /sessions/a/nightly?do=top-up']);
  expect(said('allow')).toEqual(['Refused rm /approvals?code=K7']);
  expect(said('open now')).toEqual(['Place Now /']);
  // Without a verb nothing is ordered.
  expect(lines('night', targets, 20).every((one) => !one.order)).toBe(true);
  expect(lines('', targets, 20)[0]).toMatchObject({ kind: 'Do', name: 'stop', completes: 'stop ' });
  expect(meant('stop', { kind: 'Place', name: 'Now', address: '/' })).toBeNull();
});

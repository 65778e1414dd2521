// Addresses name places; names from outside may hold anything.
import { expect, test } from 'vitest';
import { changed, match, to, toSession } from '../src/lib/router';
import { charted, range, SPANS } from '../src/lib/spans';

test.each([
  ['/', 'now', {}], ['/agents', 'agents', {}], ['/agents/', 'agents', {}], ['/agents/my%20bot', 'agent', { name: 'my bot' }],
  ['/agents/a/guards', 'agent', { name: 'a', tab: 'guards' }], ['/requests', 'requests', {}], ['/sessions/a/s%2F1', 'session', { agent: 'a', session: 's/1' }],
  ['/incidents/019', 'incident', { id: '019' }], ['/settings/keys', 'settings', { tab: 'keys' }], ['/sign-in', 'sign-in', {}],
  ['/sessions/only-agent', 'nowhere', {}], ['/nope', 'nowhere', {}], ['/agents/a/b/c', 'nowhere', {}], ['/agents/%E0%A4%A', 'agent', { name: '%E0%A4%A' }],
])('%s is %s', (path, place, params) => expect(match(path)).toEqual({ place, params }));

test('whatever a name holds, its address leads back to it', () => {
  for (const name of ['a/b', '../x', '?q=1#h', '<b>', 'ü 👾', '%41', '..', ' ']) {
    expect(match(to('sessions', name, name))).toEqual({ place: 'session', params: { agent: name, session: name } });
  }
});

test('filters are changed one by one, and empty ones are gone', () => {
  const query = new URLSearchParams('agent=a&state=running');
  expect(changed(query, { state: null, tag: 'x y' })).toBe('?agent=a&tag=x+y');
  expect(changed(query, { state: '', agent: undefined })).toBe('');
  expect(query.toString()).toBe('agent=a&state=running');
});

test('a session is named by its number where that is known', () => {
  expect(toSession('a', 's/1', '380770652363165696')).toBe('/sessions/a/s%2F1?number=380770652363165696');
  expect(toSession('a', 's', null)).toBe('/sessions/a/s');
});

test('a span began as long ago as it says', () => {
  const day = 86_400_000;
  const now = 100 * day + 5;
  const asked = (query: string, usual = '') => range((name) => new URLSearchParams(query).get(name) ?? '', usual, now);
  expect(SPANS.map(([id]) => now - asked(`span=${id}`).from!)).toEqual([900_000, 3_600_000, day, 7 * day, 30 * day, 90 * day]);
  expect(asked('')).toEqual({ id: '', name: 'Any time' });
  expect(asked('', '24h').id).toBe('24h');
  expect(asked('span=nonsense', '7d').id).toBe('7d');
  expect(asked('from=5&to=9', '24h')).toEqual({ id: 'between', name: 'Between', from: 5, to: 9 });
  // A chart begins with a whole step, and does not go beyond now.
  expect(charted(asked('span=24h'), now)).toEqual({ from: 99 * day, to: now, step: 'hour', width: 3_600_000 });
  expect(charted(asked(`from=${3 * day + 7}&to=${200 * day}`), now)).toEqual({ from: 3 * day, to: now, step: 'day', width: day });
});

// The line of events: cut anywhere, lost and found again, nothing missed without saying so.
import { expect, test, vi } from 'vitest';
import { follow, FrameReader, patience, together, type LineState, type LiveEvent } from '../src/lib/events';

const told = (id: number) => `id: ${id}\nevent: kill\ndata: ${JSON.stringify({ id, at: 1, what: 'kill', agent: 'a', session: 's', text: 't' })}\n\n`;

test('events are found wherever the stream is cut', () => {
  const text = `: hello\n\n${told(1)}event: x\r\ndata: one\r\ndata: two\r\n\r\n${told(2)}`;
  for (let size = 1; size <= text.length; size += 1) {
    const reader = new FrameReader();
    const frames = [];
    for (let at = 0; at < text.length; at += size) frames.push(...reader.push(text.slice(at, at + size)));
    expect(frames.map((frame) => frame.event), `cut at ${size}`).toEqual(['kill', 'x', 'kill']);
    expect(frames[1]?.data).toBe('one\ntwo');
    expect(frames[2]?.id).toBe('2');
  }
});

test('patience grows and has an end', () => {
  expect([1, 2, 3, 4, 5, 6, 20].map(patience)).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
});

/** Follows lines that answer as they are told, and stops when there are no more. */
async function followed(lines: (string | number)[]) {
  const gone = new AbortController();
  const seen: number[] = [];
  const states: LineState[] = [];
  const asked: (string | null)[] = [];
  const waits: number[] = [];
  let missed = 0;
  const fetched = ((_: string, init: RequestInit) => {
    asked.push(new Headers(init.headers).get('last-event-id'));
    const line = lines.shift();
    if (line === undefined) {
      gone.abort();
      return Promise.reject(new Error('no more'));
    }
    return Promise.resolve(typeof line === 'number' ? new Response('', { status: line }) : new Response(line));
  }) as typeof fetch;
  await follow('/api/events', {
    event: (event: LiveEvent) => seen.push(event.id),
    missed: () => (missed += 1),
    state: (state) => states.push(state),
  }, gone.signal, { fetch: fetched, sleep: (ms) => (waits.push(ms), Promise.resolve()) });
  return { seen, states, asked, waits, missed };
}

test('a line that breaks goes on where it was', async () => {
  const found = await followed([told(7) + told(8), told(9)]);
  expect(found.seen).toEqual([7, 8, 9]);
  expect(found.asked).toEqual([null, '8', '9']);
  expect(found.missed).toBe(0);
});

test('a line on which nothing happened goes on from where it began', async () => {
  const found = await followed(['id: 41\n\n', told(42)]);
  expect(found.seen).toEqual([42]);
  expect(found.asked).toEqual([null, '41', '42']);
  expect(found.missed).toBe(0);
});

test('a server that is away is asked again, more and more patiently', async () => {
  const found = await followed([told(1), 503, 502, 401, told(2)]);
  expect(found.waits.slice(0, 4)).toEqual([500, 1000, 2000, 4000]);
  expect(found.asked).toEqual([null, '1', '1', '1', '1', '2']);
  expect(found.states.filter((state) => state === 'live')).toHaveLength(2);
  expect(found.states).toContain('lost');
  expect(found.seen).toEqual([1, 2]);
});

test('what is gone for good is said', async () => {
  expect((await followed(['event: missed\ndata: too long ago\n\n'])).missed).toBe(1);
  // The line broke before there was a number to go on from.
  expect((await followed([': hello\n\n', told(5)])).missed).toBe(1);
});

test('what is not an event does no harm', async () => {
  const found = await followed([`data: not json\n\ndata: 5\n\ndata: {"a":1}\n\n${told(3)}`]);
  expect(found.seen).toEqual([3]);
});

test('a line that says nothing any more is hung up, though neither side closed it', async () => {
  vi.useFakeTimers();
  try {
    const gone = new AbortController();
    const states: LineState[] = [];
    const asked: (string | null)[] = [];
    const fetched = ((_: string, init: RequestInit) => {
      asked.push(new Headers(init.headers).get('last-event-id'));
      if (asked.length > 1) {
        gone.abort();
        return Promise.reject(new Error('over'));
      }
      const body = new ReadableStream<Uint8Array>({
        start(line) {
          line.enqueue(new TextEncoder().encode(told(4)));
          init.signal?.addEventListener('abort', () => line.error(new Error('hung up')));
        },
      });
      return Promise.resolve(new Response(body));
    }) as typeof fetch;
    const over = follow('/api/events', { event: () => {}, missed: () => {}, state: (state) => states.push(state) }, gone.signal, { fetch: fetched, sleep: () => Promise.resolve() });
    await vi.advanceTimersByTimeAsync(39_000);
    expect(states.at(-1)).toBe('live');
    await vi.advanceTimersByTimeAsync(2000);
    await over;
    expect(states).toContain('lost');
    expect(asked).toEqual([null, '4']);
  } finally {
    vi.useRealTimers();
  }
});

// Found on a walk: seven refusals of one open circuit pushed everything else out of what happened.
test('what happens again and again is shown once, with how often', () => {
  const event = (id: number, session: string, text: string, more: Partial<LiveEvent> = {}): LiveEvent =>
    ({ id, at: id, what: 'block', agent: 'a', session, text, ...more });
  const wait = (seconds: number) => `failed 5 times in a row and is left alone for another ${seconds} s`;
  const events = [
    event(9, 's', wait(1)), event(8, 's', wait(2)), event(7, 't', wait(2)), event(6, 's', wait(3)), event(5, 's', 'another reason'),
    event(4, 's', 'asks', { what: 'ask', approval: 'x' }), event(3, 's', 'asks', { what: 'ask', approval: 'y' }),
    event(2, 's', 'call', { what: 'call' }), event(1, 's', 'call', { what: 'call' }),
  ];
  expect(together(events).map(({ event, times }) => [event.id, times])).toEqual([[9, 2], [7, 1], [6, 1], [5, 1], [4, 1], [3, 1], [2, 1], [1, 1]]);
});

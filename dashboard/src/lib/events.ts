// Events as they happen, over a line that may break: read, resumed where it was, and said when it is down.
//
// The browser's EventSource gives up on an answer that is not 200 and cannot say what it saw last
// after that; a server that restarts is exactly that case, so the stream is read here.

export interface LiveEvent {
  id: number;
  at: number;
  what: string;
  agent: string;
  session: string;
  text: string;
  incident?: string;
  /** The call that waits for a person, if it is about one. */
  approval?: string;
}

/** An event, and how many like it came just before. */
export interface Together {
  event: LiveEvent;
  times: number;
}

/**
 * What happens again and again to one session is shown once, with how often: the newest, numbers apart. The newest
 * event comes first. Single calls, which are there when they are wanted, stay single.
 */
export function together(events: LiveEvent[]): Together[] {
  const told = (event: LiveEvent) => [event.what, event.agent, event.session, event.text.replace(/\d+/g, '0')].join('\n');
  const shown: Together[] = [];
  for (const event of events) {
    const last = shown.at(-1);
    if (last && event.what !== 'call' && event.approval === undefined && told(last.event) === told(event)) last.times += 1;
    else shown.push({ event, times: 1 });
  }
  return shown;
}

/** One event as it stood on the wire. */
export interface Frame {
  id: string | null;
  event: string;
  data: string;
}

/** Cuts a stream of text into events; what is not complete waits for more. */
export class FrameReader {
  #rest = '';
  #id: string | null = null;
  #event = '';
  #data: string[] = [];

  /** The last number that was told, with an event or without. */
  get id(): string | null {
    return this.#id;
  }

  push(text: string): Frame[] {
    const frames: Frame[] = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (this.#data.length > 0) {
          frames.push({ id: this.#id, event: this.#event || 'message', data: this.#data.join('\n') });
        }
        this.#event = '';
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') this.#data.push(value);
      else if (field === 'event') this.#event = value;
      else if (field === 'id') this.#id = value;
    }
    return frames;
  }
}

export type LineState = 'connecting' | 'live' | 'lost';

export interface Watcher {
  event(event: LiveEvent): void;
  /** Some events are gone for good: whatever is shown must be read again. */
  missed(): void;
  state(state: LineState): void;
}

export interface Wires {
  fetch: typeof fetch;
  /** Waits, unless it is aborted before. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

const SHORTEST = 500;
const LONGEST = 10_000;
/** The server says something every 15 seconds, if only that it is there. */
const SILENCE = 40_000;

/** How long to wait before the n-th attempt. */
export function patience(attempt: number): number {
  return Math.min(LONGEST, SHORTEST * 2 ** Math.max(0, attempt - 1));
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Follows the events until it is told to stop. */
export async function follow(
  url: string,
  watcher: Watcher,
  signal: AbortSignal,
  wires: Wires = { fetch: (...args) => fetch(...args), sleep: pause },
): Promise<void> {
  let last: string | null = null;
  let attempt = 0;
  let wasLive = false;
  while (!signal.aborted) {
    watcher.state(attempt === 0 ? 'connecting' : 'lost');
    const line = new AbortController();
    const hangUp = () => line.abort();
    signal.addEventListener('abort', hangUp, { once: true });
    try {
      const headers: Record<string, string> = { accept: 'text/event-stream' };
      if (last !== null) headers['last-event-id'] = last;
      const response = await wires.fetch(url, { headers, signal: line.signal, cache: 'no-store' });
      if (!response.ok || !response.body) throw new Error(`answered ${response.status}`);
      // Without a number to go on from, what happened while the line was down is unknown.
      if (wasLive && last === null) watcher.missed();
      attempt = 0;
      wasLive = true;
      watcher.state('live');
      last = await read(response.body, watcher, line, last);
    } catch {
      // Whatever it was, the answer is the same: say so and try again.
    }
    signal.removeEventListener('abort', hangUp);
    if (signal.aborted) return;
    attempt += 1;
    watcher.state('lost');
    await wires.sleep(patience(attempt), signal);
  }

  async function read(
    body: ReadableStream<Uint8Array>,
    told: Watcher,
    line: AbortController,
    seen: string | null,
  ): Promise<string | null> {
    const frames = new FrameReader();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let silence = setTimeout(() => line.abort(), SILENCE);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return last ?? seen;
        clearTimeout(silence);
        silence = setTimeout(() => line.abort(), SILENCE);
        const came = frames.push(decoder.decode(value, { stream: true }));
        last = frames.id ?? last;
        for (const frame of came) {
          if (frame.event === 'missed') {
            told.missed();
            continue;
          }
          const event = parsed(frame.data);
          if (event) told.event(event);
        }
      }
    } finally {
      clearTimeout(silence);
    }
  }
}

function parsed(data: string): LiveEvent | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === 'object' && value !== null && 'what' in value ? (value as LiveEvent) : null;
  } catch {
    return null;
  }
}

// The one line to the server that all pages share: its state, what came over it, and who wants to know.
import { follow, type LineState, type LiveEvent } from './events';

const KEPT = 300;
/** What comes within so many milliseconds is shown at once: hundreds of events a second are not. */
const TOGETHER = 100;

class Live {
  state = $state<LineState>('connecting');
  /** Since when the line is down; null while it is up. */
  downSince = $state<number | null>(null);
  /** What happened since the page was opened, the newest first. */
  recent = $state.raw<LiveEvent[]>([]);
  #listeners = new Set<(event: LiveEvent | null) => void>();
  #line: AbortController | null = null;
  #fresh: LiveEvent[] = [];

  start(): void {
    if (this.#line) return;
    this.#line = new AbortController();
    void follow(
      '/api/events',
      {
        event: (event) => this.#took(event),
        missed: () => this.#listeners.forEach((listener) => listener(null)),
        state: (state) => this.#became(state),
      },
      this.#line.signal,
    );
  }

  stop(): void {
    this.#line?.abort();
    this.#line = null;
  }

  /** Calls back with each event, and with null when events were missed and all must be read again. */
  on(listener: (event: LiveEvent | null) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #became(state: LineState): void {
    const wasDown = this.downSince !== null;
    if (state === 'live') this.downSince = null;
    else if (state === 'lost') this.downSince ??= Date.now();
    this.state = state;
    // What was asked for in vain while the line was down is asked for again.
    if (state === 'live' && wasDown) this.#listeners.forEach((listener) => listener(null));
  }

  #took(event: LiveEvent): void {
    if (this.#fresh.length === 0) setTimeout(() => this.#show(), TOGETHER);
    this.#fresh.push(event);
    this.#listeners.forEach((listener) => listener(event));
  }

  #show(): void {
    this.recent = [...this.#fresh.reverse(), ...this.recent].slice(0, KEPT);
    this.#fresh = [];
  }
}

export const live = new Live();

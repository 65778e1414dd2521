// All calls of a session, read page by page, and the new ones as they happen.
import { untrack } from 'svelte';
import { get, told, type Call } from './api';
import { live } from './live.svelte';

const PAGE = 1000;
/** A browser can hold this many; a session that has more is shown from its start. */
export const MOST = 50_000;

export class Timeline {
  calls = $state.raw<Call[]>([]);
  loading = $state(true);
  error = $state<string | null>(null);
  /** Whether there are more calls than are shown. */
  cut = $state(false);
  #gone = new AbortController();
  #reading = false;
  #due: ReturnType<typeof setTimeout> | null = null;

  constructor(readonly agent: string, readonly session: string, readonly number = '') {}

  /** Reads everything and goes on until it is told to stop. */
  start(): () => void {
    this.#gone = new AbortController();
    // Untracked: the caller's effect must not re-run when the state that is read here changes.
    untrack(() => void this.#read());
    // Calls are written in batches, by whichever node: what was called or told of just now may be read
    // a moment later.
    const soon = () => {
      this.#due ??= setTimeout(() => {
        this.#due = null;
        void this.#read();
      }, 1200);
    };
    soon();
    const off = live.on((event) => {
      if (event === null || (event.agent === this.agent && event.session === this.session)) soon();
    });
    return () => {
      off();
      if (this.#due) clearTimeout(this.#due);
      this.#due = null;
      this.#gone.abort();
    };
  }

  async #read(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    this.loading = true;
    const signal = this.#gone.signal;
    try {
      let cursor: string | null = null;
      // Calls that ran side by side end in another order than they began: look a little back.
      const since = this.calls.length > 0 ? Math.max(0, (this.calls.at(-1)?.at_ms ?? 0) - 60_000) : undefined;
      do {
        const page: { items: Call[]; next: string | null } = await get('/api/sessions/{agent}/{session}/calls', {
          path: { agent: this.agent, session: this.session },
          query: { limit: PAGE, order: 'oldest', cursor: cursor ?? undefined, from: since, number: this.number || undefined },
          signal,
        });
        this.calls = joined(this.calls, page.items);
        cursor = page.next;
        this.cut = cursor !== null && this.calls.length >= MOST;
      } while (cursor !== null && !this.cut);
      this.error = null;
    } catch (error) {
      if (!signal.aborted) this.error = told(error);
    }
    this.loading = false;
    this.#reading = false;
  }
}

/** Ids are numbers that grow, and too large for one. */
function byId(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** Calls that were known and calls that were read, each once, in the order they were made. */
export function joined(known: Call[], read: Call[]): Call[] {
  if (known.length === 0) return read;
  const fresh = new Map(read.map((call) => [call.id, call]));
  const merged = known.map((call) => {
    const newer = fresh.get(call.id);
    fresh.delete(call.id);
    return newer ?? call;
  });
  if (fresh.size === 0) return merged;
  return [...merged, ...fresh.values()].sort((a, b) => a.at_ms - b.at_ms || byId(a.id, b.id));
}

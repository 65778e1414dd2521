// What runs now, shared by the frame and the pages: one request however many look at it.
import { get, told, type Schemas } from './api';
import { live } from './live.svelte';

/** Orders and stops change what stands in the frame; single calls only matter to those who look on. */
const OFTEN = 1000;
const SELDOM = 10_000;
/** Sessions that are listed at first, the nearest to a limit first, and after scrolling. */
const FEW = 100;
const MOST = 1000;
/** For how long a session that does nothing is listed. */
const IDLE = 15 * 60_000;

class World {
  status = $state.raw<Schemas['Status'] | undefined>();
  error = $state<string | null>(null);
  /** Whether sessions that did nothing for a while are wanted, too. */
  idle = false;
  #wanted = FEW;
  #watchers = 0;
  #due: ReturnType<typeof setTimeout> | null = null;
  #took = 0;

  /** Starts keeping it fresh; gives back how to stop. */
  keep(): () => void {
    void this.refresh();
    const off = live.on((event) => {
      if (event === null || event.what !== 'call' || this.#watchers > 0) this.#soon();
    });
    // What is missing while a node is degraded need not be told as an event.
    const timer = setInterval(() => document.hidden || this.#soon(), SELDOM);
    return () => {
      off();
      clearInterval(timer);
    };
  }

  /** Registers a view of single calls. */
  watch(): () => void {
    this.#watchers += 1;
    void this.refresh();
    const timer = setInterval(() => document.hidden || this.#soon(), 5000);
    return () => {
      this.#watchers -= 1;
      this.#wanted = FEW;
      clearInterval(timer);
    };
  }

  /** Lists more of them, if there are more and it may. */
  more(): void {
    const listed = this.status?.scopes.length ?? 0;
    if (!this.status?.next || this.#wanted >= MOST || listed < this.#wanted) return;
    this.#wanted = Math.min(MOST, 2 * this.#wanted);
    void this.refresh();
  }

  #soon(): void {
    // A server with very many sessions takes longer to tell; it is asked less often then.
    this.#due ??= setTimeout(() => {
      this.#due = null;
      void this.refresh();
    }, Math.max(OFTEN, 5 * this.#took));
  }

  async refresh(): Promise<void> {
    const began = performance.now();
    try {
      const since = this.idle ? undefined : Date.now() - IDLE;
      this.status = await get('/api/status', { query: { kind: 'session', state: 'alive', order: 'danger', limit: this.#wanted, limits: 3, used_since: since } });
      this.error = null;
    } catch (error) {
      this.error = told(error);
    }
    this.#took = performance.now() - began;
  }
}

export const world = new World();

// Something that is read from the server, shown while it is read again, and kept when that fails.
import { untrack } from 'svelte';
import { told } from './api';
import type { LiveEvent } from './events';
import { live } from './live.svelte';

export interface Resource<T> {
  readonly data: T | undefined;
  readonly error: string | null;
  readonly loading: boolean;
  reload(): Promise<void>;
}

export interface How {
  /** Reads again after events for which this is true, but not more often than `pace`. */
  on?: (event: LiveEvent) => boolean;
  pace?: number;
  /** Reads again after so long in any case. */
  every?: number;
}

/**
 * To be called while a component is set up. What `load` reads of the page's state before its first
 * `await` makes it run again when it changes.
 */
export function resource<T>(load: (signal: AbortSignal) => Promise<T>, how: How = {}): Resource<T> {
  let data = $state.raw<T | undefined>();
  let error = $state<string | null>(null);
  let loading = $state(true);
  let running: AbortController | null = null;
  let due: ReturnType<typeof setTimeout> | null = null;

  async function run(): Promise<void> {
    running?.abort();
    const mine = (running = new AbortController());
    untrack(() => (loading = true));
    try {
      const found = await load(mine.signal);
      if (mine.signal.aborted) return;
      data = found;
      error = null;
    } catch (failed) {
      if (mine.signal.aborted) return;
      error = told(failed);
    }
    loading = false;
  }

  function soon(): void {
    due ??= setTimeout(() => {
      due = null;
      void run();
    }, how.pace ?? 1000);
  }

  $effect(() => {
    void run();
    return () => running?.abort();
  });
  $effect(() => {
    const off = live.on((event) => {
      if (event === null || how.on?.(event)) soon();
    });
    const timer = how.every ? setInterval(() => document.hidden || soon(), how.every) : null;
    return () => {
      off();
      if (timer) clearInterval(timer);
      if (due) clearTimeout(due);
      due = null;
    };
  });

  return {
    get data() { return data; },
    get error() { return error; },
    get loading() { return loading; },
    reload: run,
  };
}

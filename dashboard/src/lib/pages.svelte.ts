// A list that comes in pages: the first when it is shown, more as the user scrolls, the top again when
// something happens.
import { untrack } from 'svelte';
import { told } from './api';
import type { LiveEvent } from './events';
import { live } from './live.svelte';

export interface Page<T> {
  items: T[];
  next: string | null;
}

export interface Pages<T> {
  readonly items: T[];
  readonly error: string | null;
  readonly loading: boolean;
  readonly complete: boolean;
  more(): Promise<void>;
  reload(): Promise<void>;
}

/** Rows of a fresh first page over those that were there: each once, the fresh ones first. */
export function merged<T>(fresh: T[], known: T[], key: (row: T) => string): T[] {
  const seen = new Set(fresh.map(key));
  return [...fresh, ...known.filter((row) => !seen.has(key(row)))];
}

export function pages<T>(
  load: (cursor: string | null, signal: AbortSignal) => Promise<Page<T>>,
  key: (row: T) => string,
  on?: (event: LiveEvent) => boolean,
): Pages<T> {
  let items = $state.raw<T[]>([]);
  let next = $state<string | null>(null);
  let error = $state<string | null>(null);
  let loading = $state(true);
  let running: AbortController | null = null;
  let due: ReturnType<typeof setTimeout> | null = null;

  async function run(how: 'first' | 'again' | 'more'): Promise<void> {
    if (how === 'more' && (loading || next === null)) return;
    if (how !== 'more') running?.abort();
    const mine = (running = new AbortController());
    untrack(() => (loading = true));
    try {
      const page = await load(how === 'more' ? next : null, mine.signal);
      if (mine.signal.aborted) return;
      if (how === 'more') {
        items = merged(items, page.items, key);
        next = page.next;
      } else if (how === 'again' && items.length > page.items.length) {
        items = merged(page.items, items, key);
      } else {
        items = page.items;
        next = page.next;
      }
      error = null;
    } catch (failed) {
      if (mine.signal.aborted) return;
      error = told(failed);
    }
    loading = false;
  }

  $effect(() => {
    void run('first');
    return () => running?.abort();
  });
  $effect(() => {
    const off = live.on((event) => {
      if (event !== null && !on?.(event)) return;
      due ??= setTimeout(() => {
        due = null;
        void run('again');
      }, 1500);
    });
    return () => {
      off();
      if (due) clearTimeout(due);
      due = null;
    };
  });

  return {
    get items() { return items; },
    get error() { return error; },
    get loading() { return loading; },
    get complete() { return next === null; },
    more: () => run('more'),
    reload: () => run('first'),
  };
}

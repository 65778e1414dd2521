// Where the page is: an address names a place, its parameters and its filters. Nothing else does.
import { createSubscriber } from 'svelte/reactivity';

export type Place =
  | 'now' | 'agents' | 'agent' | 'sessions' | 'session' | 'requests' | 'incidents' | 'incident'
  | 'approvals' | 'costs' | 'alerts' | 'audit' | 'settings' | 'sign-in' | 'nowhere';

export interface Route {
  place: Place;
  params: Record<string, string>;
}

const ROUTES: [Place, string][] = [
  ['now', '/'],
  ['agents', '/agents'],
  ['agent', '/agents/:name'],
  ['agent', '/agents/:name/:tab'],
  ['sessions', '/sessions'],
  ['session', '/sessions/:agent/:session'],
  ['requests', '/requests'],
  ['incidents', '/incidents'],
  ['incident', '/incidents/:id'],
  ['approvals', '/approvals'],
  ['costs', '/costs'],
  ['alerts', '/alerts'],
  ['audit', '/audit'],
  ['settings', '/settings'],
  ['settings', '/settings/:tab'],
  ['sign-in', '/sign-in'],
];

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What a path names. */
export function match(path: string): Route {
  const parts = path.replace(/\/+$/, '').split('/');
  for (const [place, pattern] of ROUTES) {
    const wanted = pattern === '/' ? [''] : pattern.split('/');
    if (wanted.length !== parts.length) continue;
    const params: Record<string, string> = {};
    const fits = wanted.every((part, at) => {
      const given = parts[at] ?? '';
      if (!part.startsWith(':')) return part === given;
      params[part.slice(1)] = decoded(given);
      return given !== '';
    });
    if (fits) return { place, params };
  }
  return { place: 'nowhere', params: {} };
}

/** An address of parts, each made safe for a path. */
export function to(...parts: string[]): string {
  return `/${parts.map(encodeURIComponent).join('/')}`;
}

/** A session's address. Its number tells it from later sessions of the same name. */
export function toSession(agent: string, name: string, number?: string | null): string {
  return to('sessions', agent, name) + (number ? `?number=${number}` : '');
}

/** A query with some of it changed; what is empty is left out. */
export function changed(query: URLSearchParams, change: Record<string, string | null | undefined>): string {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(change)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  return next.size > 0 ? `?${next}` : '';
}

const MOVED = 'deadstop:moved';

class Router {
  #subscribe = createSubscriber((update) => {
    addEventListener('popstate', update);
    addEventListener(MOVED, update);
    return () => {
      removeEventListener('popstate', update);
      removeEventListener(MOVED, update);
    };
  });

  get path(): string {
    this.#subscribe();
    return location.pathname;
  }

  get query(): URLSearchParams {
    this.#subscribe();
    return new URLSearchParams(location.search);
  }

  /** A single filter; empty if it is not set. */
  param(name: string): string {
    return this.query.get(name) ?? '';
  }

  go(address: string, how: 'push' | 'replace' = 'push'): void {
    if (how === 'push') history.pushState(null, '', address);
    else history.replaceState(null, '', address);
    dispatchEvent(new Event(MOVED));
  }

  /** Changes filters without leaving a trail of every keystroke. */
  filter(change: Record<string, string | null | undefined>, how: 'push' | 'replace' = 'replace'): void {
    this.go(location.pathname + changed(new URLSearchParams(location.search), change), how);
  }
}

export const router = new Router();

/** Lets links of the page move within it; the browser keeps everything else. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.('a');
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (match(link.pathname).place === 'nowhere') return;
  event.preventDefault();
  if (link.hash && link.pathname === location.pathname) {
    document.querySelector<HTMLElement>(link.hash)?.focus();
    return;
  }
  router.go(link.pathname + link.search);
  scrollTo(0, 0);
}

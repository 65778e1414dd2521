// Who is looking at the page, and what they may do.
import { credentials, get, post, Problem, told, type Role, type Schemas } from './api';
import { live } from './live.svelte';
import { router } from './router';

const RANK: Record<Role, number> = { metrics: -1, agent: 0, viewer: 1, operator: 2, admin: 3 };

class Me {
  identity = $state<Schemas['Identity'] | null>(null);
  state = $state<'asking' | 'known' | 'stranger' | 'unreachable'>('asking');
  detail = $state('');

  /** Whether this browser is on a server without keys, and not signed in: it may be an agent's. */
  get unproven(): boolean {
    return this.identity !== null && this.identity.key === null && !this.identity.operator;
  }

  /**
   * Why this person may not do something that takes a role; null if they may. Without keys, what only looks
   * or tightens control is open to everybody on the machine.
   */
  barred(role: Role, effect: 'loosens' | 'tightens' | 'looks' = 'loosens'): string | null {
    const own = this.identity?.role;
    if (!own) return 'Sign in first';
    if (RANK[own] < RANK[role]) return `This takes the role ${role}; yours is ${own}`;
    return this.unproven && effect === 'loosens' ? 'Sign in first: run deadstop sign-in in a terminal, and open its link' : null;
  }

  async ask(): Promise<void> {
    try {
      this.#became(await get('/api/whoami', {}));
    } catch (error) {
      const stranger = error instanceof Problem && error.status === 401;
      this.state = stranger ? 'stranger' : 'unreachable';
      this.detail = told(error);
    }
  }

  async signIn(key: string): Promise<void> {
    await post('/api/login', { body: { key } });
    await this.ask();
  }

  async signOut(): Promise<void> {
    const keyless = this.identity?.key === null;
    await post('/api/logout', {});
    if (keyless) await this.ask();
    else this.#left();
  }

  #became(identity: Schemas['Identity']): void {
    this.identity = identity;
    credentials.csrf = identity.csrf_token;
    this.state = 'known';
    live.start();
  }

  #left(): void {
    live.stop();
    credentials.csrf = null;
    this.identity = null;
    this.state = 'stranger';
  }

  constructor() {
    credentials.onSignInNeeded = () => {
      if (this.state === 'known') this.#left();
      const from = location.pathname + location.search;
      if (!location.pathname.startsWith('/sign-in')) {
        router.go(`/sign-in?from=${encodeURIComponent(from)}`, 'replace');
      }
    };
  }
}

export const me = new Me();

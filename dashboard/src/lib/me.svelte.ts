// Who is looking at the page, and what they may do.
import { credentials, get, post, Problem, told, type Role, type Schemas } from './api';
import { live } from './live.svelte';
import { router } from './router';

const RANK: Record<Role, number> = { agent: 0, viewer: 1, operator: 2, admin: 3 };

class Me {
  identity = $state<Schemas['Identity'] | null>(null);
  state = $state<'asking' | 'known' | 'stranger' | 'unreachable'>('asking');
  detail = $state('');

  /** Why this person may not do something that takes a role; null if they may. */
  barred(role: Role): string | null {
    const own = this.identity?.role;
    if (!own) return 'Sign in first';
    if (RANK[own] >= RANK[role]) return null;
    return `This takes the role ${role}; yours is ${own}`;
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
    await post('/api/logout', {});
    this.#left();
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

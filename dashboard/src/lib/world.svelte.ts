// What runs now, shared by the frame and the pages: one request however many look at it.
import { get, told, type Schemas } from './api';
import { live } from './live.svelte';
import type { PolicyPart } from './danger';

/** Orders and stops change what stands in the frame; single calls only matter to those who look on. */
const OFTEN = 1000;

class World {
  status = $state.raw<Schemas['Status'] | undefined>();
  error = $state<string | null>(null);
  /** Policies in force: the default's under the empty name, agents' own under theirs. */
  policies = $state.raw<Map<string, PolicyPart>>(new Map());
  #watchers = 0;
  #due: ReturnType<typeof setTimeout> | null = null;
  #took = 0;

  /** Starts keeping it fresh; gives back how to stop. */
  keep(): () => void {
    void this.refresh();
    void this.readPolicies();
    return live.on((event) => {
      if (event === null || event.what === 'change') void this.readPolicies();
      if (event === null || event.what !== 'call' || this.#watchers > 0) this.#soon();
    });
  }

  /** Says that somebody looks at single calls. */
  watch(): () => void {
    this.#watchers += 1;
    void this.refresh();
    const timer = setInterval(() => document.hidden || this.#soon(), 5000);
    return () => {
      this.#watchers -= 1;
      clearInterval(timer);
    };
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
      this.status = await get('/api/status', {});
      this.error = null;
    } catch (error) {
      this.error = told(error);
    }
    this.#took = performance.now() - began;
  }

  async readPolicies(): Promise<void> {
    try {
      const [shared, listed] = await Promise.all([get('/api/policies/default', {}), get('/api/policies', {})]);
      const found = new Map<string, PolicyPart>([['', shared.effective as PolicyPart]]);
      const own = listed.items.filter((item) => item.agent !== null && !item.is_default).slice(0, 50);
      await Promise.all(own.map(async ({ agent }) => {
        const document = await get('/api/policies/agents/{name}', { path: { name: agent ?? '' } });
        found.set(agent ?? '', document.effective as PolicyPart);
      }));
      this.policies = found;
    } catch {
      // Without them nothing is said about limits, and what runs is shown all the same.
    }
  }

  /** The policy in force for an agent's sessions. */
  policyOf(agent: string): PolicyPart | undefined {
    return this.policies.get(agent) ?? this.policies.get('');
  }
}

export const world = new World();

// Calls that wait for a person, shared by the frame's badge and the page that lists them.
import { get, post, told, type Schemas } from './api';
import { live } from './live.svelte';

export type Approval = Schemas['Approval'];

/** What makes the list another one. */
const TELLING = new Set(['ask', 'approved', 'denied', 'lapsed', 'withdrawn', 'stopped', 'kill', 'killed']);

class Approvals {
  items = $state.raw<Approval[] | undefined>();
  error = $state<string | null>(null);
  #again = false;
  #busy = false;

  /** Starts keeping it fresh; gives back how to stop. */
  keep(): () => void {
    void this.refresh();
    return live.on((event) => {
      if (event === null || TELLING.has(event.what)) void this.refresh();
    });
  }

  async refresh(): Promise<void> {
    if (this.#busy) {
      this.#again = true;
      return;
    }
    this.#busy = true;
    do {
      this.#again = false;
      try {
        this.items = (await get('/api/approvals', {})).items;
        this.error = null;
      } catch (error) {
        this.error = told(error);
      }
    } while (this.#again);
    this.#busy = false;
  }

  async decide(approval: Approval, answer: 'approve' | 'deny', reason: string): Promise<void> {
    const at = { path: { id: approval.id }, body: { reason } };
    try {
      if (answer === 'approve') await post('/api/approvals/{id}/approve', at);
      else await post('/api/approvals/{id}/deny', at);
    } finally {
      void this.refresh();
    }
  }
}

export const approvals = new Approvals();

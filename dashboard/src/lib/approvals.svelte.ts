// Calls that wait for a person, shared by the frame's badge and the page that lists them.
import { get, post, told, type Schemas } from './api';
import { count, plural } from './format';
import { live } from './live.svelte';

export type Approval = Schemas['Approval'];

/** What makes the list another one. */
const TELLING = new Set(['ask', 'approved', 'denied', 'lapsed', 'withdrawn', 'stopped', 'kill', 'killed']);

/** Characters as the server counts them. */
export const chars = (text: string): number => [...text].length;

/** Why a call cannot be approved yet, or at all; null if it can. Only what was shown can be. */
export function unshown(one: Pick<Approval, 'kind' | 'asked_chars' | 'unkept_chars'>, shown: number): string | null {
  if (one.kind !== 'tool') return null;
  if (one.unkept_chars > 0) return `The call has ${count(one.asked_chars + one.unkept_chars)} characters, and only ${count(one.asked_chars)} can be shown. It cannot be approved.`;
  const more = one.asked_chars - shown;
  return more > 0 ? `${plural(more, 'character')} not shown. Show the whole call first.` : null;
}

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

  /** One of them with its whole text. */
  async whole(approval: Approval): Promise<Approval> {
    return await get('/api/approvals/{id}', { path: { id: approval.id } });
  }

  /** `shown` is how many characters of the call stood on the page. */
  async decide(approval: Approval, answer: 'approve' | 'deny', reason: string, shown: number): Promise<void> {
    const path = { id: approval.id };
    try {
      if (answer === 'approve') await post('/api/approvals/{id}/approve', { path, body: { reason, shown_chars: shown } });
      else await post('/api/approvals/{id}/deny', { path, body: { reason } });
    } finally {
      void this.refresh();
    }
  }
}

export const approvals = new Approvals();

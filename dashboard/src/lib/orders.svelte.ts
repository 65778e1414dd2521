// Orders that people give: stop, pause, resume, remove. Each asks for a reason first. The names of the API
// (kill, clear, reset, activate, deactivate) stay; people read `stop` and `resume`.
import { get, patch, post, remove, type Row } from './api';

export type What = 'kill' | 'pause' | 'resume' | 'clear' | 'reset' | 'activate' | 'deactivate' | 'remove';

export interface Subject {
  kind: 'everything' | 'agent' | 'session';
  agent?: string;
  session?: string;
}

export interface Asked {
  what: What;
  subject: Subject;
  /** Called once it is in force. */
  done?: () => void;
}

/** The order that waits for its reason; one dialog for the whole page shows it. */
class Orders {
  asked = $state.raw<Asked | null>(null);
  /** What was done last, for those who cannot see it. */
  said = $state('');

  ask(what: What, subject: Subject, done?: () => void): void {
    this.asked = { what, subject, done };
  }

  dismiss(): void {
    this.asked = null;
  }

  async carryOut(asked: Asked, reason: string): Promise<void> {
    await send(asked, reason);
    this.said = `${title(asked)}: done`;
    this.asked = null;
    asked.done?.();
  }
}

export const orders = new Orders();

async function send({ what, subject }: Asked, reason: string): Promise<unknown> {
  const { kind, agent = '', session = '' } = subject;
  if (what === 'activate' || what === 'deactivate') {
    return patch('/api/agents/{name}', { path: { name: agent }, body: { active: what === 'activate', reason } });
  }
  if (what === 'remove') return remove('/api/agents/{name}', { path: { name: agent }, query: { reason } });
  if (kind === 'session') {
    const at = { path: { agent, session }, body: { reason } };
    switch (what) {
      case 'kill': return post('/api/sessions/{agent}/{session}/kill', at);
      case 'pause': return post('/api/sessions/{agent}/{session}/pause', at);
      case 'resume': return post('/api/sessions/{agent}/{session}/resume', at);
      default: return post('/api/sessions/{agent}/{session}/reset', at);
    }
  }
  const body = kind === 'agent' ? { agent, reason } : { all: true, reason };
  switch (what) {
    case 'kill': return post('/api/kill', { body });
    case 'pause': return post('/api/pause', { body });
    case 'resume': return post('/api/resume', { body });
    default: return post('/api/clear', { body });
  }
}

const VERBS: Record<What, string> = {
  kill: 'Stop', pause: 'Pause', resume: 'Resume', clear: 'Resume', reset: 'Resume',
  activate: 'Resume', deactivate: 'Stop', remove: 'Remove',
};

/** What is asked, as the dialog's heading. */
export function title({ what, subject }: Asked): string {
  const name = subject.kind === 'everything' ? 'everything' : subject.kind === 'agent' ? `agent ${subject.agent}` : `session ${subject.session}`;
  return `${VERBS[what]} ${name}`;
}

/** What it means, before it is done. */
export function consequence({ what, subject }: Asked): string {
  switch (what) {
    case 'kill':
      if (subject.kind === 'everything') return 'Every call of every agent is refused from now on, and calls that run are cut off. It lasts until you resume.';
      if (subject.kind === 'agent') return 'Its calls are refused and those that run are cut off, in all of its sessions, until you resume it.';
      return 'Its calls are refused and those that run are cut off. If you resume it later, it starts with empty counters.';
    case 'pause': return 'The next call is held until you resume or stop it. Calls that run may finish.';
    case 'resume': return 'Calls that are held go on.';
    case 'reset': return 'The session goes on under its name with empty counters and windows. Its history is kept.';
    case 'deactivate': return 'Its calls are refused and those that run are cut off until you resume it.';
    case 'remove': return 'Lists and counts leave it out until its next call. Its calls, sessions, incidents and audit entries stay. If it is stopped or paused, it stays so.';
    case 'activate':
    case 'clear': return 'The next call runs. The windows of its guards are cleared, so that the same calls do not stop it again at once. Read why it was stopped first.';
  }
}

/** Whether the order ends something. */
export function stops(what: What): boolean {
  return what === 'kill' || what === 'deactivate';
}

/** Everything in memory; shared by what shows it. */
export const status = (signal?: AbortSignal) => get('/api/status', { signal });

export function sessionOf(row: Row): Subject {
  return { kind: 'session', agent: row.agent, session: row.name };
}

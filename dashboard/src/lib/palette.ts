// The command palette: a verb and a name make an order. `stop nightly` finds what can be stopped.
import { found, type Thing } from './find';
import type { Subject, What } from './orders.svelte';

export type Verb = 'stop' | 'pause' | 'resume' | 'top up' | 'allow once' | 'open';

export const VERBS: [verb: Verb, note: string][] = [
  ['stop', 'Refuse the calls of a session, an agent or everything'],
  ['pause', 'Hold the next call'],
  ['resume', 'Let what was paused or stopped run again'],
  ['top up', 'Raise the limits of a session'],
  ['allow once', 'Let one refused call pass'],
  ['open', 'Go to a page, an agent, a session or an incident'],
];

/** Something that the palette can find, and how it stands. */
export interface Target extends Thing {
  subject?: Subject;
  state?: string;
  /** The code of a refused call. */
  code?: string;
}

/** A line of the palette: an order to ask for, an address to go to, or a verb to complete. */
export interface Line extends Thing {
  verb?: Verb;
  order?: { what: What; subject: Subject };
  completes?: string;
}

/** The verb that was typed, in full or as its first word, and what comes after it. */
export function spoken(typed: string): { verb: Verb | null; rest: string } {
  const text = typed.trimStart().toLowerCase();
  for (const [verb] of VERBS) {
    for (const word of [verb, verb.split(' ')[0] ?? verb]) {
      if (text === word || text.startsWith(`${word} `)) return { verb, rest: text.slice(word.length).trim() };
    }
  }
  return { verb: null, rest: text };
}

const stopped = (target: Target) => target.state === 'killed' || target.state === 'stopped';

/** What a verb means for a target; null where it means nothing. */
export function meant(verb: Verb, target: Target): Line | null {
  const { subject } = target;
  const line = (more: Partial<Line>): Line => ({ kind: target.kind, name: target.name, note: target.note, address: target.address, verb, ...more });
  if (verb === 'open') return target.address ? line({}) : null;
  if (verb === 'allow once') return target.code ? line({ address: `/approvals?code=${encodeURIComponent(target.code)}` }) : null;
  if (!subject) return null;
  if (verb === 'top up') return subject.kind === 'session' ? line({ address: `${target.address}?do=top-up` }) : null;
  if (verb === 'resume') {
    if (target.state === 'paused') return line({ order: { what: 'resume', subject } });
    if (!stopped(target)) return null;
    const what: What = subject.kind === 'everything' ? 'clear' : subject.kind === 'agent' ? 'activate' : 'reset';
    return line({ order: { what, subject } });
  }
  if (stopped(target) || (verb === 'pause' && target.state === 'paused')) return null;
  return line({ order: { what: verb === 'stop' ? 'kill' : 'pause', subject } });
}

/** The lines for what was typed: orders after a verb, else verbs that begin so and everything of that name. */
export function lines(typed: string, targets: Target[], most: number): Line[] {
  const { verb, rest } = spoken(typed);
  if (verb) {
    const fits = targets.flatMap((target) => meant(verb, target) ?? []);
    return found(rest, fits, most) as Line[];
  }
  const verbs = VERBS.filter(([one]) => rest === '' || one.startsWith(rest)).map(([one, note]): Line => ({ kind: 'Do', name: one, note, address: '', completes: `${one} ` }));
  const opened = targets.flatMap((target) => meant('open', target) ?? []);
  return [...verbs, ...(found(rest, opened, most) as Line[])].slice(0, most);
}

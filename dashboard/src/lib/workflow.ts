// What people do about incidents: one order for one, several, or all that are alike.
import { post, type Schemas } from './api';

export type Doing = Schemas['IncidentAction'];
export type Alike = Schemas['Alike'];
export interface Which {
  ids?: string[];
  groups?: Alike[];
}

const DONE: Record<Doing, string> = {
  acknowledge: 'Acknowledged', assign: 'Assigned', resolve: 'Resolved', false_alarm: 'Resolved as a false alarm',
  reopen: 'Opened again', mute: 'Muted: no alerts, still enforced and recorded', unmute: 'Alerts are sent again',
};

/** How long incidents that are alike may be muted: words, and milliseconds or null for good. */
export const SPANS: [words: string, ms: number | null][] = [
  ['1 hour', 3_600_000], ['1 day', 86_400_000], ['7 days', 7 * 86_400_000], ['for good', null],
];

/** Carries it out; what to tell the user. */
export async function act(action: Doing, which: Which, more: { note?: string; assignee?: string; until_ms?: number } = {}): Promise<string> {
  const done = await post('/api/incidents/actions', { body: { action, ids: which.ids ?? [], groups: which.groups ?? [], note: more.note ?? '', ...more } });
  const many = done.incidents.length > 1 && action !== 'mute' && action !== 'unmute' ? `: ${done.incidents.length} incidents` : '';
  return `${DONE[action]}${many}`;
}

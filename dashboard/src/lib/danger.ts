// How near a session is to being stopped by a limit, from what it has used and what its policy allows.
import type { Row } from './api';
import { count, duration, usd } from './format';

/** The part of a policy that limits are read from: sections of settings, null where nothing is set. */
export type PolicyPart = Record<string, unknown>;

export interface Limit {
  /** What is limited, in words. */
  what: string;
  used: string;
  most: string;
  /** Used over allowed. */
  ratio: number;
}

function setting(policy: PolicyPart, section: string, name: string): number | null {
  const found = (policy[section] as PolicyPart | undefined)?.[name];
  return typeof found === 'number' && found > 0 ? found : null;
}

/** Every limit that is set, the nearest first. What runs is counted with what it has reserved. */
export function limits(row: Row, policy: PolicyPart | undefined, now: number): Limit[] {
  if (!policy) return [];
  const money = row.cost_usd + row.reserved_usd;
  const elapsed = now - row.opened_ms;
  const per = (policy.budget as PolicyPart | undefined)?.per;
  const found: Limit[] = [];
  const add = (what: string, used: number, most: number | null, write: (n: number) => string) => {
    if (most !== null) found.push({ what, used: write(used), most: write(most), ratio: used / most });
  };
  // A budget that starts anew each hour or day cannot be read from a total.
  if (per === 'total' || per === undefined) add('cost', money, setting(policy, 'budget', 'max_cost_usd'), usd);
  add('tool calls', row.steps, setting(policy, 'steps', 'max_steps'), count);
  add('model calls', row.model_calls, setting(policy, 'steps', 'max_model_calls'), count);
  add('input tokens', row.input_tokens, setting(policy, 'tokens', 'input_token_limit'), count);
  add('output tokens', row.output_tokens, setting(policy, 'tokens', 'output_token_limit'), count);
  add('tokens', row.input_tokens + row.output_tokens, setting(policy, 'tokens', 'total_token_limit'), count);
  const seconds = setting(policy, 'time', 'max_wall_time_seconds');
  add('time', elapsed, seconds === null ? null : seconds * 1000, duration);
  return found.sort((a, b) => b.ratio - a.ratio);
}

/** The order of the list: nearest to a limit first, then what runs, then what was used last. */
export function byDanger(a: { row: Row; nearest: Limit | undefined }, b: { row: Row; nearest: Limit | undefined }): number {
  const ratio = (b.nearest?.ratio ?? -1) - (a.nearest?.ratio ?? -1);
  if (ratio !== 0) return ratio;
  return b.row.in_flight - a.row.in_flight || b.row.cost_usd - a.row.cost_usd || b.row.used_ms - a.row.used_ms;
}

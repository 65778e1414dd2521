// The guards as a form: what each setting means, in words. Values, defaults and weights come from the
// server; a setting that is not described here is shown all the same, under its own name.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Part = { [key: string]: Json };

export interface Field {
  key: string;
  label: string;
  hint?: string;
  unit?: string;
  choices?: [value: string, text: string][];
  /** A count, or `off`: empty in the form. */
  rung?: boolean;
}

export interface Section {
  key: string;
  name: string;
  about: string;
  fields: Field[];
}

const ACTION: Field = {
  key: 'action', label: 'When it trips',
  choices: [['warn', 'Warn: let it pass'], ['steer', 'Steer: let it pass and tell the model'], ['ask', 'Ask: hold it until a person decides'], ['block', 'Block: refuse the call'], ['terminate', 'Stop it']],
};
const ENDS: Field = {
  key: 'ends', label: 'Stops',
  choices: [['scope', 'the scope it tripped in'], ['session', 'the session'], ['agent', 'the whole agent']],
};
const HARM: [value: string, text: string][] = [
  ['allow', 'Allow'], ['warn', 'Warn: let it pass'], ['ask', 'Ask: hold it until a person decides'], ['block', 'Block: refuse the call'], ['terminate', 'Stop it'],
];
const ENABLED: Field = { key: 'enabled', label: 'Enabled' };

export const SECTIONS: Section[] = [
  {
    key: 'loop', name: 'Loop detection', about: 'Calls that bring nothing new: the same call again, two or more in turns, a failing call retried without progress.',
    fields: [
      ENABLED,
      { key: 'steer_at', label: 'Tell the model at', unit: 'repeats', rung: true, hint: 'The call runs; the model is told what repeats. Empty: off.' },
      { key: 'block_at', label: 'Refuse the call at', unit: 'repeats', rung: true, hint: 'Empty: off.' },
      { key: 'end_at', label: 'End the session at', unit: 'repeats', rung: true, hint: 'Refused repeats count, too. Empty: off.' },
      { key: 'threshold', label: 'Repeats in a row', hint: 'Only where the three steps above are off.' }, ACTION, ENDS,
      { key: 'max_wait_s', label: 'May wait for something', unit: 'seconds', hint: 'Looking with pauses does not count for so long.' },
      { key: 'tools', label: 'Tools with limits of their own', hint: 'By name or pattern, as JSON: {"get_job*": {"end_at": 200}, "ping": {"ignore": true}}.' },
    ],
  },
  {
    key: 'budget', name: 'Budget', about: 'Money. A call\'s cost is reserved before it runs, and a stream is cut when the limit is reached.',
    fields: [
      { key: 'max_cost_usd', label: 'Most that may be spent', unit: 'USD', hint: 'Empty: no limit.' },
      { key: 'soft_alert_threshold_usd', label: 'Warn at', unit: 'USD', hint: 'Must be less than the limit.' },
      { key: 'per', label: 'Counts', choices: [['total', 'in total'], ['hour', 'each hour anew'], ['day', 'each day anew']] },
      { key: 'reservation', label: 'Reserve', choices: [['expected', 'expected cost'], ['ceiling', 'highest possible cost']] },
      { key: 'ceiling_share', label: 'Share of the rest for a call without a maximum', hint: 'Under ceiling; 0.125 is an eighth.' },
      { key: 'wait_s', label: 'Wait for room', unit: 's', hint: 'How long a call waits for room that calls in flight may leave.' },
      { key: 'tool_prices', label: 'Prices of tools', hint: 'By name or pattern, in dollars a call, as JSON: {"search_*": 0.01}.' }, ACTION,
    ],
  },
  {
    key: 'steps', name: 'Steps', about: 'How many calls may be made, whatever they are.',
    fields: [{ key: 'max_steps', label: 'Tool calls', hint: 'Empty: no limit.' }, { key: 'max_model_calls', label: 'Model calls', hint: 'Empty: no limit.' }, ACTION],
  },
  {
    key: 'time', name: 'Time', about: 'By the clock on the wall, from the first call on.',
    fields: [{ key: 'max_wall_time_seconds', label: 'Longest', unit: 'seconds', hint: 'Empty: no limit.' }, ACTION],
  },
  {
    key: 'tokens', name: 'Tokens', about: 'As the provider counts them; what is read from a cache does not count.',
    fields: [
      { key: 'input_token_limit', label: 'Input', unit: 'tokens' }, { key: 'output_token_limit', label: 'Output', unit: 'tokens' },
      { key: 'total_token_limit', label: 'Both together', unit: 'tokens' }, ACTION,
    ],
  },
  {
    key: 'ending', name: 'Ending', about: 'What happens before and at the end of a limit, so that the work is kept.',
    fields: [
      { key: 'wrap_up_at', label: 'Ask the agent to finish at', hint: 'A share of any limit, such as 90%; or off.' },
      { key: 'reserve_for_answer', label: 'Keep for one last answer', hint: 'A share of each limit, such as 5%. At the end tools are refused and one answer is allowed; or off.' },
    ],
  },
  {
    key: 'velocity', name: 'Velocity', about: 'How fast it may spend. It goes on by itself when it has slowed down.',
    fields: [{ key: 'max_usd_per_minute', label: 'Money', unit: 'USD a minute' }, { key: 'max_tokens_per_minute', label: 'Tokens', unit: 'tokens a minute' }, ACTION],
  },
  {
    key: 'swarm', name: 'Sub-agents', about: 'How many sub-agents a session may have.',
    fields: [{ key: 'max_agents', label: 'In all', hint: 'Empty: no limit.' }, { key: 'max_parallel', label: 'Side by side', hint: 'Those that made a call in the last minute and have not ended. Empty: no limit.' },
      { key: 'max_depth', label: 'Below each other', hint: 'Empty: no limit.' }, { key: 'max_spawns_per_minute', label: 'New ones a minute', hint: 'Empty: no limit.' }, ACTION],
  },
  {
    key: 'quota', name: 'Provider quota', about: 'How much of a provider\'s own window (five hours, a week) may be used.',
    fields: [{ key: 'max_used', label: 'Share that may be used', hint: 'Such as 80%; or off.' }, ACTION],
  },
  {
    key: 'breaker', name: 'Circuit breaker', about: 'Stops calls to a server that keeps failing, for a while; each server for itself.',
    fields: [
      ENABLED, { key: 'open_after_failures', label: 'Failures in a row that open it' }, { key: 'cooldown_seconds', label: 'Stays open', unit: 'seconds' },
      { key: 'half_open_max_calls', label: 'Trial calls after that' }, ACTION,
    ],
  },
  {
    key: 'harm', name: 'Harm', about: 'What one call would do: how far it reaches and whether it comes back. Judged on its first call.',
    fields: [
      ENABLED, { key: 'catastrophic', label: 'Catastrophic harm', choices: HARM }, { key: 'serious', label: 'Serious harm that does not come back', choices: HARM },
      { key: 'recoverable', label: 'Serious harm that takes work to bring back', choices: HARM }, { key: 'unknown', label: 'Serious harm that only a tool\'s name tells of', choices: HARM },
      { key: 'secrets', label: 'Secrets read or sent, fetched code run', choices: HARM }, { key: 'unreadable', label: 'Unreadable commands with destructive words', choices: HARM },
      { key: 'allow', label: 'Deeds that are allowed', hint: 'One pattern a line, such as rm -rf tmp/*' },
    ],
  },
  {
    key: 'destructive', name: 'Destructive calls', about: 'Deleting too much, or the same thing again and again; also behind a shell, SQL or HTTP tool.',
    fields: [
      ENABLED, { key: 'max_deletes', label: 'Maximum destructive calls' }, { key: 'max_same_target', label: 'Maximum on one target' },
      { key: 'window_s', label: 'Within', unit: 'seconds' }, { key: 'exempt_targets', label: 'Targets that may be destroyed', hint: 'One name or pattern a line.' }, ACTION, ENDS,
    ],
  },
  {
    key: 'similarity', name: 'Similarity (kill switch)', about: 'A score of similar prompts, similar answers and repeated tool calls.',
    fields: [
      ENABLED, { key: 'window_size', label: 'Window', unit: 'requests' }, { key: 'threshold', label: 'Score that must be exceeded' },
      { key: 'prompt_weight', label: 'A similar prompt counts' }, { key: 'response_weight', label: 'A similar response counts' },
      { key: 'tool_call_weight', label: 'A repeated tool call counts' }, ACTION, ENDS,
    ],
  },
  {
    key: 'text_loop', name: 'Text loops', about: 'The same thing said again and again, in one answer or over turns without tools.',
    fields: [ENABLED, { key: 'steer_at', label: 'Tell the model at', unit: 'answers', rung: true, hint: 'Empty: off.' },
      { key: 'end_at', label: 'End the session at', unit: 'answers', rung: true, hint: 'Empty: off.' },
      { key: 'max_repeated_answers', label: 'Answers that say the same' }, ACTION, ENDS],
  },
  {
    key: 'strikes', name: 'Strikes', about: 'Blocked or failed calls in a row.',
    fields: [ENABLED, { key: 'consecutive_blocks', label: 'Blocked calls in a row' }, { key: 'consecutive_errors', label: 'Tool calls without an answer in a row' }, { key: 'provider_errors', label: 'Count provider errors, too' }, ACTION],
  },
  {
    key: 'access', name: 'Access', about: 'Which tools may be called.',
    fields: [
      { key: 'allow', label: 'Only these tools', hint: 'One name or pattern a line, such as read_*. Empty: all.' },
      { key: 'deny', label: 'Never these tools', hint: 'One name or pattern a line.' },
      { key: 'ask', label: 'Ask a person before these tools', hint: 'One name or pattern a line. The call waits under Approvals.' },
      { key: 'rules', label: 'Rules on arguments', hint: 'As JSON, as in a policy file.' }, ACTION,
      { key: 'pin_tools', label: 'When a tool\'s description changes', choices: [['off', 'Nothing'], ['warn', 'Warn: note it, let it pass'], ['block', 'Block: refuse the call']] },
    ],
  },
];

export const GENERAL: Field[] = [
  { key: 'mode', label: 'Mode', choices: [['enforce', 'enforce'], ['log-only', 'record warnings only']] },
  { key: 'ask_timeout_s', label: 'Wait for a person', unit: 'seconds', hint: 'Where the action is ask. Then the call is refused.' },
  { key: 'offline_calls', label: 'Calls allowed while the cluster is unreachable', hint: 'How many calls of an agent one node allows while it cannot reach the shared state.' },
  { key: 'fail_mode', label: 'While the database fails', choices: [['open', 'calls go on'], ['closed', 'calls are refused']] },
];

/** Sections about other kinds of scopes, which a policy carries inside itself. */
export const SCOPES: [key: string, name: string, about: string][] = [
  ['', 'Each session', 'What holds for every session by itself.'],
  ['agent', 'The agent as a whole', 'What holds over all of the agent\'s sessions together.'],
  ['nested', 'Inside a session', 'What holds for each sub-agent or step inside a session.'],
  ['project', 'The whole project', 'What holds over all agents together.'],
];

const isPart = (value: Json | undefined): value is Part => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The part of a policy that is about one kind of scope. */
export function scopePart(policy: Part, scope: string): Part | null {
  if (scope === '') return policy;
  const found = policy[scope];
  return isPart(found) ? found : null;
}

/** The sections to show: those with a description here, then those without one. */
export function sectionsOf(part: Part): Section[] {
  const scopes = new Set(SCOPES.map(([key]) => key));
  const described = SECTIONS.filter((section) => isPart(part[section.key])).map((section) => {
    const there = part[section.key] as Part;
    const fields = section.fields.filter((field) => field.key in there);
    const known = new Set(section.fields.map((field) => field.key));
    const others = Object.keys(there).filter((key) => !known.has(key)).map((key) => ({ key, label: key.replaceAll('_', ' ') }));
    return { ...section, fields: [...fields, ...others] };
  });
  const names = new Set(SECTIONS.map((section) => section.key));
  const others = Object.keys(part).filter((key) => !names.has(key) && !scopes.has(key) && isPart(part[key]));
  return [...described, ...others.map((key) => ({
    key, name: key.replaceAll('_', ' '), about: '', fields: Object.keys(part[key] as Part).map((name) => ({ key: name, label: name.replaceAll('_', ' ') })),
  }))];
}

export interface Difference {
  path: string;
  before: Json | undefined;
  after: Json | undefined;
}

/** What differs between two documents, setting by setting. */
export function differences(before: Json | undefined, after: Json | undefined, path = ''): Difference[] {
  if (isPart(before) && isPart(after)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
    return [...keys].flatMap((key) => differences(before[key], after[key], path ? `${path}.${key}` : key));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ path, before, after }];
}

/** A setting's value as a word. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return 'not set';
  if (typeof value === 'boolean') return value ? 'on' : 'off';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Whether a section does anything: it is on, or one of its limits is set. */
export function inForce(part: Part): boolean {
  if ('enabled' in part) return part.enabled === true;
  return Object.entries(part).some(([key, value]) =>
    !['action', 'ends', 'per', 'reservation'].includes(key) && value !== null && (!Array.isArray(value) || value.length > 0) && (!isPart(value) || Object.keys(value).length > 0));
}

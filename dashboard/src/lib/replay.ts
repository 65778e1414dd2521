// A session replayed: what it had used after each of its calls, and the tree of scopes they were made in.
import type { Call } from './api';

export interface Ledger {
  cost: number;
  input: number;
  output: number;
  steps: number;
  modelCalls: number;
  elapsed: number;
}

/** What had been used after each call, in one pass. */
export function ledgers(calls: Call[]): Ledger[] {
  const first = calls[0]?.at_ms ?? 0;
  let [cost, input, output, steps, modelCalls] = [0, 0, 0, 0, 0];
  return calls.map((call) => {
    cost += call.cost_usd;
    input += call.input_tokens;
    output += call.output_tokens;
    // A call that was refused was never made.
    const made = call.verdict === 'allow' || call.verdict === 'warn' || call.status !== null;
    if (made && call.kind === 'tool') steps += 1;
    if (made && call.kind === 'model') modelCalls += 1;
    return { cost, input, output, steps, modelCalls, elapsed: call.at_ms + (call.duration_ms ?? 0) - first };
  });
}

export interface Node {
  name: string;
  path: string;
  calls: Call[];
  children: Node[];
  /** With everything below it. */
  total: { calls: number; cost: number; tokens: number; stops: number };
}

/** The scopes of a session as a tree; the root is the session itself. */
export function tree(name: string, calls: Call[]): Node {
  const make = (title: string, path: string): Node => ({ name: title, path, calls: [], children: [], total: { calls: 0, cost: 0, tokens: 0, stops: 0 } });
  const root = make(name, '');
  for (const call of calls) {
    const chain = [root];
    for (const part of (call.nested ?? '').split('/').filter(Boolean)) {
      const above = chain.at(-1)!;
      const path = `${above.path}/${part}`;
      let next = above.children.find((child) => child.path === path);
      if (!next) above.children.push((next = make(part, path)));
      chain.push(next);
    }
    chain.at(-1)!.calls.push(call);
    for (const scope of chain) {
      scope.total.calls += 1;
      scope.total.cost += call.cost_usd;
      scope.total.tokens += call.input_tokens + call.output_tokens;
      scope.total.stops += call.verdict === 'block' || call.verdict === 'kill' ? 1 : 0;
    }
  }
  return root;
}

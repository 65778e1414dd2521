// Trying a policy on the sessions of the last days before it is saved. The answer comes line by line.
import { credentials, Problem } from './api';
import type { Part } from './guards';

export interface Stopped {
  agent: string;
  session: string;
  explain: string;
  verdict: string;
  guard: string;
  at_ms: number;
  calls_after: number;
  cost_after_usd: number;
  was_stopped: boolean;
}

export interface Outcome {
  sessions: number;
  calls: number;
  warned: number;
  blocked: number;
  killed: number;
  saved_usd: number;
  stopped: Stopped[];
}

type Line = { progress?: { done: number; of: number }; result?: Outcome; failed?: string };

/** Cuts text into whole lines; what is not complete waits for more. */
export class LineReader {
  #rest = '';
  push(text: string): string[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.filter((line) => line.trim() !== '');
  }
  end(): string[] {
    const rest = this.#rest;
    this.#rest = '';
    return rest.trim() === '' ? [] : [rest];
  }
}

export async function backtest(
  trial: { policy: Part; agent?: string; sessions: number },
  progress: (done: number, of: number) => void,
  signal: AbortSignal,
): Promise<Outcome> {
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (credentials.csrf) headers['x-csrf-token'] = credentials.csrf;
  const response = await fetch('/api/backtest', { method: 'POST', headers, body: JSON.stringify(trial), signal });
  if (response.status === 404 || response.status === 405) {
    throw new Problem(response.status, 'no_backtest', 'this server cannot try policies yet; `deadstop backtest` does, on a file of traces');
  }
  if (!response.ok || !response.body) {
    const said = await response.json().catch(() => null) as { detail?: string } | null;
    throw new Problem(response.status, 'backtest', said?.detail ?? `the server answered ${response.status}`);
  }
  const lines = new LineReader();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    const ready = done ? lines.end() : lines.push(decoder.decode(value, { stream: true }));
    for (const text of ready) {
      const line = JSON.parse(text) as Line;
      if (line.progress) progress(line.progress.done, line.progress.of);
      if (line.failed) throw new Problem(500, 'backtest', line.failed);
      if (line.result) return line.result;
    }
    if (done) throw new Problem(500, 'backtest', 'the answer ended before its result');
  }
}

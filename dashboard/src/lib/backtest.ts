// Trying a policy on the sessions of the last days before it is saved. The answer comes line by line.
import { credentials, Problem, type Schemas } from './api';
import type { Part } from './guards';

export type Outcome = Schemas['Outcome'];

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
      const line = JSON.parse(text) as Schemas['TrialLine'];
      if ('progress' in line) progress(line.progress.done, line.progress.of);
      else if ('failed' in line) throw new Problem(500, 'backtest', line.failed);
      else return line.result;
    }
    if (done) throw new Problem(500, 'backtest', 'the answer ended before its result');
  }
}

// Money over time, in equal steps: seeded from the server's sums, grown from totals that are read.

export interface Steps {
  times: number[];
  values: number[];
}

/** Adds up what happened in each step between two times; what lies outside is left out. */
export function steps(things: { at: number; value: number }[], from: number, to: number, width: number): Steps {
  const first = Math.floor(from / width) * width;
  const many = Math.max(1, Math.floor((to - first) / width) + 1);
  const times = Array.from({ length: many }, (_, index) => first + index * width);
  const values = new Array<number>(many).fill(0);
  for (const { at, value } of things) {
    const index = Math.floor((at - first) / width);
    if (index >= 0 && index < many) values[index]! += value;
  }
  return { times, values };
}

export interface Spent {
  at: number;
  value: number;
}

/** Spending as it is seen: a call's money counts when the call ends. */
export class Spending {
  #last: number | null = null;
  all: Spent[] = [];

  constructor(readonly span: number) {}

  /** Takes what the server added up, step by step. */
  seed(points: { at_ms: number; cost_usd: number }[]): void {
    const before = points.map((point) => ({ at: point.at_ms, value: point.cost_usd }));
    this.all = [...before, ...this.all];
  }

  /** Takes note of a total; what it has grown by was spent since the last one. */
  total(at: number, total: number): void {
    if (this.#last !== null && total > this.#last) this.all.push({ at, value: total - this.#last });
    this.#last = total;
    const oldest = at - this.span;
    if ((this.all[0]?.at ?? at) < oldest) this.all = this.all.filter((one) => one.at >= oldest);
  }

  /** What was spent in the minute before. */
  perMinute(now: number): number {
    return this.all.reduce((sum, one) => (one.at > now - 60_000 && one.at <= now + 1000 ? sum + one.value : sum), 0);
  }
}

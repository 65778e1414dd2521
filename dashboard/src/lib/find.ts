// Finding by name: what begins with what was typed comes before what merely has it somewhere.

export interface Thing {
  kind: string;
  name: string;
  note?: string;
  address: string;
}

function rank(typed: string, thing: Thing): number {
  const name = thing.name.toLowerCase();
  if (name.startsWith(typed)) return 0;
  if (name.split(/[\s/_.:-]+/).some((word) => word.startsWith(typed))) return 1;
  if (name.includes(typed)) return 2;
  return `${thing.kind} ${thing.note ?? ''}`.toLowerCase().includes(typed) ? 3 : -1;
}

/** The best few; all words must be there. */
export function found(typed: string, things: Thing[], most: number): Thing[] {
  const wanted = typed.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return things.slice(0, most);
  const ranked: [number, Thing][] = [];
  for (const thing of things) {
    const ranks = wanted.map((word) => rank(word, thing));
    if (ranks.every((one) => one >= 0)) ranked.push([Math.max(...ranks), thing]);
  }
  return ranked.sort((a, b) => a[0] - b[0]).slice(0, most).map(([, thing]) => thing);
}

// What differs between two texts, by words. Long texts are compared at their ends and in the middle only as
// far as that stays quick.

export interface Piece {
  text: string;
  kind: 'same' | 'added' | 'removed';
}

const MOST = 700;

function tokens(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** Both texts as pieces: what only the first has is removed, what only the second has is added. */
export function compared(before: string, after: string): Piece[] {
  const a = tokens(before);
  const b = tokens(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const pieces: Piece[] = [];
  push(pieces, 'same', a.slice(0, start));
  middle(pieces, a.slice(start, a.length - end), b.slice(start, b.length - end));
  push(pieces, 'same', a.slice(a.length - end));
  return pieces;
}

function push(pieces: Piece[], kind: Piece['kind'], found: string[]): void {
  if (found.length === 0) return;
  const last = pieces.at(-1);
  if (last?.kind === kind) last.text += found.join('');
  else pieces.push({ kind, text: found.join('') });
}

function middle(pieces: Piece[], a: string[], b: string[]): void {
  if (a.length > MOST || b.length > MOST || a.length === 0 || b.length === 0) {
    push(pieces, 'removed', a);
    push(pieces, 'added', b);
    return;
  }
  const wide = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * wide + j] = a[i] === b[j]
        ? longest[(i + 1) * wide + j + 1]! + 1
        : Math.max(longest[(i + 1) * wide + j]!, longest[i * wide + j + 1]!);
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      push(pieces, 'same', [a[i]!]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * wide + j]! >= longest[i * wide + j + 1]!)) {
      push(pieces, 'removed', [a[i]!]);
      i += 1;
    } else {
      push(pieces, 'added', [b[j]!]);
      j += 1;
    }
  }
}

/** The share of the two that is the same, from 0 to 1. */
export function likeness(pieces: Piece[]): number {
  const size = (kind: Piece['kind']) => pieces.reduce((sum, piece) => sum + (piece.kind === kind ? piece.text.length : 0), 0);
  const same = 2 * size('same');
  const all = same + size('added') + size('removed');
  return all === 0 ? 1 : same / all;
}

// Puts what the model should be told behind a tool's result.

import type { Core } from './core.js';

/** The field of an object that holds the note. */
const FIELD = 'deadstop_note';

/**
 * A result with a note behind it. Text, plain objects, content blocks and MCP results carry one; of other
 * values a guarded client says it with its next request.
 */
export function advised<T>(core: Core, result: T, note: string | null): T {
  if (note === null) return result;
  const told = carrying(result, note);
  if (told !== undefined) return told as T;
  core.engine.leaveNote();
  return result;
}

/** What was thrown, with a note in its message; unless a guarded client says it with its next request. */
export function adviseError(core: Core, error: unknown, note: string | null): void {
  if (note === null || core.engine.leaveNote() || !(error instanceof Error)) return;
  try {
    error.message = `${error.message}\n\n${note}`;
  } catch {
    // It cannot be changed. The callback has heard of it.
  }
}

function carrying(result: unknown, note: string): unknown {
  if (typeof result === 'string') return result === '' ? note : `${result}\n\n${note}`;
  const block = { type: 'text', text: note };
  if (areBlocks(result)) return [...result, block];
  if (!isPlain(result)) return undefined;
  const { content } = result;
  return areBlocks(content) ? { ...result, content: [...content, block] } : { ...result, [FIELD]: note };
}

function areBlocks(value: unknown): value is object[] {
  const isBlock = (one: unknown): boolean => isPlain(one) && typeof one['type'] === 'string';
  return Array.isArray(value) && value.length > 0 && value.every(isBlock);
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const kind: unknown = Object.getPrototypeOf(value);
  return kind === Object.prototype || kind === null;
}

// Gemini CLI's loop detector, as its package has it, on recorded runs: JSON lines on stdin, and for each line the
// number of the message at which it first found a loop, or null.
//
// Its third check asks a model after 30 turns. There is no model here, so that check is left out.

import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const path = 'node_modules/@google/gemini-cli-core/dist/src/services/loopDetectionService.js';
const { LoopDetectionService } = await import(pathToFileURL(path).href);
// The detector asks its configuration whether it is switched off, and the log whether it may write.
const config = new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => false) });

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

function found({ messages }) {
  const detector = new LoopDetectionService({ config });
  for (const [at, message] of messages.entries()) {
    if (message.role === 'user') detector.reset(`prompt-${at}`, String(message.content));
    if (message.role !== 'assistant') continue;
    const events = String(message.content ?? '').split(/(?<=\n)/).map((value) => ({ type: 'content', value }));
    for (const { function: { name, arguments: args } } of message.tool_calls ?? [])
      events.push({ type: 'tool_call_request', value: { name, args: parsed(args) } });
    if (events.some((event) => detector.addAndCheck(event).count > 0)) return at + 1;
  }
  return null;
}

for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify({ noticed: found(JSON.parse(line)) }));

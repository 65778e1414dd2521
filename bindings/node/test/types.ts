// Checked by tsc, never run: wrapping changes no types.

import Anthropic from '@anthropic-ai/sdk';
import { DeadstopKilled, guard, session as open } from 'deadstop';
import type { Health, KillContext, Session, State } from 'deadstop';
import { guardTools, middleware } from 'deadstop/ai';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, tool, wrapLanguageModel } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';

export async function checked(): Promise<string | null> {
  const session: Session<OpenAI> = guard(new OpenAI(), { agent: 'a', policy: 'strict', mode: 'log-only', maxSteps: 3 });
  const answer = await session.client.chat.completions.create({ model: 'gpt-4o', messages: [] });
  const stream = await session.client.chat.completions.create({ model: 'gpt-4o', messages: [], stream: true });
  for await (const chunk of stream) chunk.choices[0]?.delta.content?.toUpperCase();
  const message = await guard(new Anthropic(), { agent: 'a' }).client.messages.create({ model: 'm', max_tokens: 9, messages: [] });
  message.usage.input_tokens.toFixed();

  const add = session.tool(function add(a: number, b = 2): number {
    return a + b;
  });
  add(1).toFixed();
  // @ts-expect-error: a tool keeps its parameters
  add('1');
  // @ts-expect-error: there is no such mode
  open({ agent: 'a', mode: 'loud' });
  // @ts-expect-error: there is no such limit
  session.scope('x', { maxStep: 3 });

  const length: Promise<number> = session.scope('crew', { maxCostUsd: 1, onTripped: (context: KillContext) => context.reason }, async (scope) => scope.path.length);
  const { a, b } = await session.scope('crew').limit({ maxSteps: 3 }).parallel({ a: async () => 1, b: () => 'two' });
  a.toFixed(await length);
  b.toUpperCase();
  const state: State = session.getState();
  const health: Health = session.getHealth();
  if (health.durability === 'server' && state.killed) session.signal.throwIfAborted();

  const model = wrapLanguageModel({ model: createOpenAI()('gpt-4o'), middleware: middleware(session) });
  const tools = guardTools(session, { look: tool({ inputSchema: z.object({ n: z.number() }), execute: async ({ n }) => n + 1 }) });
  await generateText({ model, tools, prompt: 'go', abortSignal: session.signal }).catch((error: unknown) => {
    if (error instanceof DeadstopKilled) return error.context.accumulatedInputTokens.toFixed();
    throw error;
  });
  createOpenAI({ fetch: session.fetch });
  return answer.choices[0]?.message.content ?? null;
}

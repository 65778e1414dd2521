// The same for `require`: checked by tsc, never run.

import deadstop = require('deadstop');
import ai = require('deadstop/ai');
import OpenAI = require('openai');

export function checked(): Promise<OpenAI.OpenAI.Chat.ChatCompletion> {
  const session: deadstop.Session<OpenAI.OpenAI> = deadstop.guard(new OpenAI.OpenAI(), { agent: 'a' });
  const { look } = ai.guardTools(session, { look: { execute: (n: number) => n } });
  look.execute(1).toFixed();
  if (session.signal.reason instanceof deadstop.DeadstopKilled) session.restore();
  return session.client.chat.completions.create({ model: 'gpt-4o', messages: [] });
}

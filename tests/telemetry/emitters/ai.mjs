// An agent of the AI SDK that keeps calling one tool. It speaks to its provider directly; what Deadstop sees of it is its
// telemetry. `node ai.mjs v5|v7 PROVIDER SESSION STEPS`; the rest comes from OTEL_* variables, as in any program.
import { NodeSDK } from '@opentelemetry/sdk-node';
import { z } from 'zod';

const [version, provider, session, steps] = process.argv.slice(2);
// The Node SDK reads where to send, by which protocol and with which headers, from the environment.
const sdk = new NodeSDK({ instrumentations: [] });
sdk.start();

const ai = await import(version === 'v5' ? 'ai-v5' : 'ai');
const { createOpenAI } = await import(version === 'v5' ? '@ai-sdk/openai-v5' : '@ai-sdk/openai');
// Version 5 writes spans by itself, with these names on each; version 7 has them in a package of their own.
const telemetry = { isEnabled: true, functionId: 'planner', metadata: { sessionId: session } };
if (version === 'v7') {
  const { OpenTelemetry } = await import('@ai-sdk/otel');
  const named = { 'gen_ai.agent.name': 'planner', 'gen_ai.conversation.id': session };
  ai.registerTelemetry(new OpenTelemetry({ enrichSpan: () => named }));
}
const model = createOpenAI({ baseURL: `${provider}/v1`, apiKey: 'sk-x' }).chat('gpt-4o-loop');
const get_weather = ai.tool({
  description: 'The weather in a city',
  inputSchema: z.object({ city: z.string(), days: z.number() }),
  execute: async () => 'rain',
});
const options = { model, prompt: 'How is the weather?', tools: { get_weather }, stopWhen: ai.stepCountIs(Number(steps)) };
await ai.generateText({ ...options, experimental_telemetry: telemetry });
await sdk.shutdown();

// One agent of one framework, with one tool, in a process of its own: `loops.mjs FRAMEWORK`. As loops.py is.

import { z } from 'zod';

const { BASE, HEALTHY } = process.env;
const MODEL = 'gpt-4o';
const KEY = 'stand-in';
const TASK = 'Which of the builds failed?';
const MOST = 60;
const ABOUT = 'Reads the log of a build';
const schema = z.object({ number: z.string() });

function getBuild({ number }) {
  console.log(`tool: build ${number}`);
  return HEALTHY === '1' ? `build ${number} passed` : 'error: no such build';
}

const FRAMEWORKS = {
  async 'ai-sdk'() {
    const { generateText, isStepCount, tool } = await import('ai');
    const { createOpenAI } = await import('@ai-sdk/openai');
    const model = createOpenAI({ baseURL: BASE, apiKey: KEY }).chat(MODEL);
    const tools = { get_build: tool({ description: ABOUT, inputSchema: schema, execute: async (input) => getBuild(input) }) };
    return (await generateText({ model, tools, stopWhen: isStepCount(MOST), prompt: TASK })).text;
  },
  async 'langchain-js'() {
    const { createAgent, tool } = await import('langchain');
    const { ChatOpenAI } = await import('@langchain/openai');
    const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, configuration: { baseURL: BASE } });
    const tools = [tool(async (input) => getBuild(input), { name: 'get_build', description: ABOUT, schema })];
    const said = await createAgent({ model, tools }).invoke({ messages: [{ role: 'user', content: TASK }] }, { recursionLimit: 2 * MOST });
    return said.messages.at(-1).content;
  },
  async 'openai-agents-js'() {
    const { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool } = await import('@openai/agents');
    const { default: OpenAI } = await import('openai');
    setTracingDisabled(true);
    const model = new OpenAIChatCompletionsModel(new OpenAI({ baseURL: BASE, apiKey: KEY }), MODEL);
    const tools = [tool({ name: 'get_build', description: ABOUT, parameters: schema, execute: async (input) => getBuild(input) })];
    return (await run(new Agent({ name: 'a', model, tools }), TASK, { maxTurns: MOST })).finalOutput;
  },
  async mastra() {
    const { Agent } = await import('@mastra/core/agent');
    const { createTool } = await import('@mastra/core/tools');
    const { createOpenAI } = await import('@ai-sdk/openai');
    const model = createOpenAI({ baseURL: BASE, apiKey: KEY }).chat(MODEL);
    const get_build = createTool({ id: 'get_build', description: ABOUT, inputSchema: schema, execute: async (input) => getBuild(input.context ?? input) });
    const agent = new Agent({ id: 'a', name: 'a', instructions: 'Answer.', model, tools: { get_build } });
    return (await agent.generate(TASK, { maxSteps: MOST })).text;
  },
};

try {
  console.log('said:', await FRAMEWORKS[process.argv[2]]());
  process.exit(0);
} catch (error) {
  console.log(`error: ${error.name}: ${error.message} ${error.cause?.message ?? ''} ${error.responseBody ?? ''}`);
  process.exit(1);
}

// The SDKs for Node, each behind the same few functions, so that one set of tests is run with all of
// them. Nothing here sets retries or error handling: the SDKs run as they come.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { AISDKError, APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

export const QUESTION = "What's the weather in Paris? ✓";
const SCHEMA = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const NAME = "get_weather";
const ARGUMENTS = '{"city": "Paris", "days": 3}';
const RESULT = "cannot reach the weather service";

// An SDK that leaves the agent's loop to its caller: asks, answers the tool call, asks again.
async function loop(sdk, ask) {
  let turns = sdk.begin();
  for (let step = 1; step < 20; step++) {
    const call = JSON.stringify(await ask(turns)).match(/call_\d+/)[0];
    turns = [...turns, ...sdk.result(call)];
  }
}

const openai = {
  path: (url) => `${url}/openai`,
  connect: (url, key, session) =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: key, defaultHeaders: { "x-deadstop-session": session }, timeout: 30_000 }),
  begin: () => [{ role: "user", content: QUESTION }],
  raises: (error) => error instanceof OpenAI.APIError,
  status: (error) => error.status,
  reason: (error) => error.code,
  loop,
  own: [],
};

const chat = {
  ...openai,
  name: "openai chat",
  ask: (client, model, messages, stream, signal) =>
    client.chat.completions.create(
      { model, messages, stream, tools: [{ type: "function", function: { name: NAME, parameters: SCHEMA } }] },
      { signal },
    ),
  result: (id) => [
    { role: "assistant", tool_calls: [{ id, type: "function", function: { name: NAME, arguments: ARGUMENTS } }] },
    { role: "tool", tool_call_id: id, content: RESULT },
  ],
};

const responses = {
  ...openai,
  name: "openai responses",
  ask: (client, model, input, stream, signal) =>
    client.responses.create(
      { model, input, stream, tools: [{ type: "function", name: NAME, parameters: SCHEMA, strict: false }] },
      { signal },
    ),
  result: (call_id) => [
    { type: "function_call", call_id, name: NAME, arguments: ARGUMENTS },
    { type: "function_call_output", call_id, output: RESULT },
  ],
};

const messages = {
  name: "anthropic messages",
  path: (url) => `${url}/anthropic`,
  connect: (url, key, session) =>
    new Anthropic({ baseURL: url, apiKey: key, defaultHeaders: { "x-deadstop-session": session }, timeout: 30_000 }),
  begin: () => [{ role: "user", content: QUESTION }],
  ask: (client, model, messages, stream, signal) =>
    client.messages.create(
      { model, messages, stream, max_tokens: 1000, tools: [{ name: NAME, input_schema: SCHEMA }] },
      { signal },
    ),
  result: (id) => [
    { role: "assistant", content: [{ type: "tool_use", id, name: NAME, input: JSON.parse(ARGUMENTS) }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: id, content: RESULT, is_error: true }] },
  ],
  raises: (error) => error instanceof Anthropic.APIError,
  status: (error) => error.status,
  reason: (error) => error.error.error.deadstop.reason,
  loop,
  own: [],
};

// The Vercel AI SDK runs the loop itself.
const settings = (model, turns, signal) => ({
  model,
  messages: turns,
  abortSignal: signal,
  tools: { [NAME]: tool({ inputSchema: jsonSchema(SCHEMA), execute: async () => RESULT }) },
});
// Its own measurements, and where the answer came from; not what the provider said.
const own = ["performance", "timestamp", "headers", "url"];

async function* parts(options) {
  const { fullStream } = streamText({ ...options, onError: () => {} });
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    yield part;
  }
}

const vercel = {
  begin: () => [{ role: "user", content: QUESTION }],
  async ask({ model }, name, turns, stream, signal, more = {}) {
    const options = { ...settings(model(name), turns, signal), ...more };
    if (stream) return parts(options);
    const { text, content, toolCalls, finishReason, usage, response } = await generateText(options);
    return { text, content, toolCalls, finishReason, usage, body: response.body };
  },
  async loop(sdk, ask) {
    await ask(sdk.begin(), { stopWhen: stepCountIs(20) });
  },
  own,
  raises: (error) => AISDKError.isInstance(error),
  status: (error) => (APICallError.isInstance(error) ? error.statusCode : undefined),
  reason: (error) => {
    const { error: told } = JSON.parse(error.responseBody);
    return told.code ?? told.deadstop.reason;
  },
};

const vercelOpenai = (url, key, session) =>
  createOpenAI({ baseURL: `${url}/v1`, apiKey: key, headers: { "x-deadstop-session": session } });

export const sdks = [
  chat,
  responses,
  messages,
  {
    ...vercel,
    name: "vercel openai chat",
    path: openai.path,
    connect: (...to) => ({ provider: vercelOpenai(...to), model: vercelOpenai(...to).chat }),
  },
  {
    ...vercel,
    name: "vercel openai responses",
    path: openai.path,
    connect: (...to) => ({ provider: vercelOpenai(...to), model: vercelOpenai(...to).responses }),
  },
  {
    ...vercel,
    name: "vercel anthropic",
    path: messages.path,
    connect: (url, key, session) => ({
      model: createAnthropic({ baseURL: `${url}/v1`, apiKey: key, headers: { "x-deadstop-session": session } }),
    }),
  },
];

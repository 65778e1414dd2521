// The official TypeScript SDK as a client, of servers behind the gateway and behind `deadstop mcp`.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const cases = JSON.parse(process.env.CASES).filter((one) => ["legacy", "auto"].includes(one.mode));
const text = (result) => result.content[0].text;

async function works(client, everything) {
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  if (everything) {
    assert.ok(names.includes("echo") && names.includes("get-sum"), names.join());
    assert.match(text(await client.callTool({ name: "echo", arguments: { message: "hello" } })), /hello/);
    return;
  }
  assert.deepEqual(names.sort(), ["add", "delete_asset", "fail", "report", "think"]);
  assert.match(text(await client.callTool({ name: "add", arguments: { a: 2, b: 3 } })), /5/);
  const steps = [];
  const onprogress = ({ progress }) => steps.push(progress);
  const report = await client.callTool({ name: "report", arguments: {} }, undefined, { onprogress });
  assert.equal(text(report), "reported");
  assert.deepEqual(steps, [1, 2]);
  const failed = await client.callTool({ name: "fail", arguments: {} });
  assert.ok(failed.isError);
  assert.equal(text(await client.callTool({ name: "think", arguments: {} })), "it thinks: yes");
}

async function stopped(client, everything) {
  const call = everything
    ? { name: "echo", arguments: { message: "again" } }
    : { name: "delete_asset", arguments: { asset_id: "fact_sales" } };
  let error;
  let attempt = 0;
  while (!error && attempt < 8) {
    attempt += 1;
    await client.callTool(call).catch((caught) => { error = caught; });
  }
  assert.equal(attempt, everything ? 5 : 3);
  assert.equal(error.code, 403);
  assert.match(error.message, /Do not retry\.$/);
  assert.equal(error.data.retryable, false);
  await assert.rejects(client.callTool({ name: "add", arguments: { a: 1, b: 1 } }), (later) => {
    assert.equal(later.data.reason, "session_killed_loop_guard");
    return true;
  });
}

/** Calls the tool that fails until the model is told; says which call that was. */
async function told(client) {
  for (let attempt = 1; attempt < 9; attempt++) {
    const { content, isError } = await client.callTool({ name: "fail", arguments: {} });
    if (!content.at(-1).text.startsWith("[Deadstop] ")) continue;
    assert.ok(isError && content.length > 1 && content.at(-1).text.includes("`fail`"));
    return attempt;
  }
  throw new Error("the model was not told");
}

async function follows(client) {
  assert.equal(await told(client), 3);
  for (const a of [0, 1, 2]) {
    const { content } = await client.callTool({ name: "add", arguments: { a, b: 40 } });
    assert.deepEqual(content.map((block) => block.text), [`${a + 40}`]);
  }
}

async function ignores(client) {
  assert.equal(await told(client), 3);
  const refused = [];
  for (let attempt = 4; attempt <= 10; attempt++) {
    await client.callTool({ name: "fail", arguments: {} }).catch((caught) => refused.push(caught));
  }
  // The fourth call is steered once more; the fifth to the ninth are refused, the tenth ends it.
  assert.equal(refused.length, 6);
  assert.deepEqual(refused.map((error) => error.message.includes("stopped")), [false, false, false, false, false, true]);
  await assert.rejects(client.callTool({ name: "add", arguments: { a: 1, b: 1 } }), (later) => {
    assert.equal(later.data.guard, "killed");
    return true;
  });
}

async function play(one, what) {
  const everything = one.server === "everything";
  const session = `node-${one.name}-${what}`;
  const client = new Client({ name: "test", version: "1" }, { capabilities: { sampling: {} } });
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    role: "assistant", model: "none", content: { type: "text", text: "yes" },
  }));
  const transport = one.url
    ? new StreamableHTTPClientTransport(new URL(`${one.url}/agent/${session}/session/${session}/mcp/${one.server}`))
    : new StdioClientTransport({
        command: one.wrapper[0],
        args: [...one.wrapper.slice(1), "--agent", session, "--session", session, "--server", one.server, "--", ...one.command],
        env: process.env,
        stderr: "ignore",
      });
  await client.connect(transport);
  try {
    await { works, stopped, follows, ignores }[what](client, everything);
  } finally {
    await client.close();
  }
}

let bad = 0;
for (const one of cases) {
  try {
    for (const what of one.steers ? ["follows", "ignores"] : ["works", "stopped"]) await play(one, what);
    console.log(`ok    node ${one.name}`);
  } catch (error) {
    bad += 1;
    console.log(`FAILED node ${one.name}: ${error.stack}`);
  }
}
process.exit(bad ? 1 : 0);

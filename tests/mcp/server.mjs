// An MCP server made with the official TypeScript SDK: `server.mjs stdio`, or `server.mjs http PORT`.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const said = (text) => ({ content: [{ type: "text", text }] });

function make() {
  const server = new McpServer({ name: "node", version: "1" });
  server.registerTool(
    "add",
    { description: "Adds two numbers", inputSchema: { a: z.number(), b: z.number() } },
    ({ a, b }) => said(String(a + b)),
  );
  server.registerTool(
    "delete_asset",
    { description: "Deletes an asset", inputSchema: { asset_id: z.string() } },
    () => said("asset still exists"),
  );
  server.registerTool("report", { description: "Tells how far it is" }, async (extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of [1, 2]) {
      await extra.sendNotification({
        method: "notifications/progress",
        params: { progressToken, progress, total: 2 },
      });
    }
    // The SDK's client forgets about progress as soon as the result is in.
    await setTimeout(200);
    return said("reported");
  });
  server.registerTool("think", { description: "Has the client's model think" }, async () => {
    const answer = await server.server.createMessage({
      messages: [{ role: "user", content: { type: "text", text: "and?" } }],
      maxTokens: 10,
    });
    return said(`it thinks: ${answer.content.text}`);
  });
  server.registerTool("fail", { description: "Fails" }, () => {
    throw new Error("disk full");
  });
  return server;
}

if (process.argv[2] === "stdio") {
  await make().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    let transport = sessions.get(id);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (made) => sessions.set(made, transport),
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(process.argv[3]), "127.0.0.1");
}

"""An MCP server made with the official Python SDK: `server.py stdio`, or `server.py http PORT`."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent

server = MCPServer("python")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


@server.tool()
def delete_asset(asset_id: str) -> str:
    """Deletes an asset"""
    return "asset still exists"


@server.tool()
async def report(ctx: Context) -> str:
    """Tells how far it is"""
    for step in (1, 2):
        await ctx.report_progress(step, 2, f"step {step}")
    # The TypeScript client forgets about progress as soon as the result is in.
    await asyncio.sleep(0.2)
    return "reported"


@server.tool()
async def think(ctx: Context) -> str:
    """Has the client's model think"""
    words = SamplingMessage(role="user", content=TextContent(type="text", text="and?"))
    answer = await ctx.session.create_message([words], max_tokens=10)
    return f"it thinks: {answer.content.text}"


@server.tool()
def fail() -> str:
    """Fails"""
    raise ValueError("disk full")


if sys.argv[1] == "http":
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run("stdio")

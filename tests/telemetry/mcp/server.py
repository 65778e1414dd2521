"""An MCP server made with the official Python SDK, which has a span for each message: `server.py stdio`, or
`server.py http PORT`."""

import sys

from mcp.server.mcpserver import MCPServer

import spans

spans.start()
server = MCPServer("counter")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


if sys.argv[1] == "http":
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run("stdio")

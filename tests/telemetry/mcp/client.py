"""An MCP client made with the official Python SDK, which has a span for each message and names it in `_meta`.
`client.py URL` or `client.py COMMAND…` calls the tool `add` once."""

import os
import sys

import anyio
from mcp import Client, StdioServerParameters

import spans

spans.start()


async def main():
    target = sys.argv[1]
    if not target.startswith("http"):
        target = StdioServerParameters(command=target, args=sys.argv[2:], env=dict(os.environ))
    async with Client(target) as client:
        with anyio.fail_after(60):
            result = await client.call_tool("add", {"a": 2, "b": 40})
    assert result.content[0].text == "42", result


anyio.run(main)

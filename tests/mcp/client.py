"""The official Python SDK as a client, of servers behind the gateway and behind `deadstop mcp`.

What works directly works here: listings, calls, progress, requests of the server, errors. Then an
asset is deleted again and again, and the third attempt ends the session.
"""

import json
import os
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CreateMessageResult, TextContent

CASES = json.loads(os.environ["CASES"])


async def model(context, params):
    content = TextContent(type="text", text="yes")
    return CreateMessageResult(role="assistant", content=content, model="none")


def text(result):
    return result.content[0].text


async def works(client, everything, modern):
    names = {tool.name for tool in (await client.list_tools()).tools}
    if everything:
        assert {"echo", "get-sum"} <= names, names
        assert "hello" in text(await client.call_tool("echo", {"message": "hello"}))
        assert "5" in text(await client.call_tool("get-sum", {"a": 2, "b": 3}))
        return
    assert names == {"add", "delete_asset", "report", "think", "fail"}, names
    assert "5" in text(await client.call_tool("add", {"a": 2, "b": 3}))
    steps = []

    async def progress(step, total, message):
        steps.append(step)

    assert text(await client.call_tool("report", {}, progress_callback=progress)) == "reported"
    assert steps == [1, 2], steps
    failed = await client.call_tool("fail", {})
    assert failed.is_error, failed
    if not modern:
        assert text(await client.call_tool("think", {})) == "it thinks: yes"


async def stopped(client, everything):
    tool, arguments = ("echo", {"message": "again"}) if everything else ("delete_asset", {"asset_id": "fact_sales"})
    for attempt in range(1, 9):
        try:
            await client.call_tool(tool, arguments)
        except MCPError as caught:
            error = caught.error
            break
    else:
        raise AssertionError("it was not stopped")
    # Deleting is stopped at the third attempt, saying the same again and again by the loop guard.
    assert attempt == (5 if everything else 3), attempt
    assert error.code == 403 and error.message.endswith("do not retry"), error
    assert error.data["retryable"] is False, error
    try:
        await client.call_tool("add", {"a": 1, "b": 1})
    except MCPError as later:
        assert later.error.data["reason"] == "session_killed_loop_guard", later.error
    else:
        raise AssertionError("a dead session went on")


async def case(case):
    everything = case["server"] == "everything"
    # The newer era has no way back for requests of the server.
    modern = case["mode"] != "legacy"
    for what in ("works", "stopped"):
        # An agent each: one that destroys the same in session after session is stopped as well.
        session = f"python-{case['name']}-{what}"
        if case.get("url"):
            target = f"{case['url']}/agent/{session}/session/{session}/mcp/{case['server']}"
        else:
            command = [*case["wrapper"], "--agent", session, "--session", session,
                       "--server", case["server"], "--", *case["command"]]
            target = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with Client(target, mode=case["mode"], sampling_callback=model) as client:
            with anyio.fail_after(30):
                await (works(client, everything, modern) if what == "works" else stopped(client, everything))


async def main():
    bad = 0
    for one in CASES:
        try:
            await case(one)
            print(f"ok    python {one['name']}", flush=True)
        except BaseException as error:  # noqa: BLE001
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            bad += 1
            print(f"FAILED python {one['name']}: {error!r}", flush=True)
    return bad


sys.exit(1 if anyio.run(main) else 0)

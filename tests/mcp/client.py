"""The official Python SDK as a client, of servers behind the gateway and behind `deadstop mcp`.

What works directly works here: listings, calls, progress, requests of the server, errors. Then an
asset is deleted again and again, and the third attempt ends the session. A model that is steered and
follows finishes; one that ignores it is refused, then ended.
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


async def stopped(client, everything, before=0):
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
    assert attempt == (5 if everything else 3) + before, attempt
    assert error.code == 403 and error.message.endswith("Do not retry."), error
    assert error.data["retryable"] is False, error
    try:
        await client.call_tool("add", {"a": 1, "b": 1})
    except MCPError as later:
        assert later.error.data["reason"] == "session_killed_loop_guard", later.error
    else:
        raise AssertionError("a dead session went on")


async def told(client):
    """Calls the tool that fails until the model is told; says which call that was."""
    for attempt in range(1, 9):
        failed = await client.call_tool("fail", {})
        if failed.content[-1].text.startswith("[Deadstop] "):
            assert failed.is_error and "`fail`" in failed.content[-1].text, failed
            return attempt
    raise AssertionError("the model was not told")


async def follows(client):
    assert await told(client) == 3
    for a in range(3):
        added = await client.call_tool("add", {"a": a, "b": 40})
        assert [block.text for block in added.content] == [str(a + 40)], added


async def ignores(client):
    assert await told(client) == 3
    refused = []
    for _ in range(4, 11):
        try:
            await client.call_tool("fail", {})
        except MCPError as caught:
            refused.append(caught.error)
    # The fourth call is steered once more; the fifth to the ninth are refused, the tenth ends it.
    assert len(refused) == 6 and "stopped" in refused[-1].message, refused
    assert all("stopped" not in error.message for error in refused[:-1]), refused
    try:
        await client.call_tool("add", {"a": 1, "b": 1})
    except MCPError as later:
        assert later.error.data["guard"] == "killed", later.error
    else:
        raise AssertionError("a dead session went on")


async def case(case):
    everything = case["server"] == "everything"
    # The newer era has no way back for requests of the server.
    modern = case["mode"] != "legacy"
    kinds = ("follows", "ignores") if case.get("steers") else ("works", "stopped")
    for what in kinds[:1] if case.get("nameless") else kinds:
        # An agent each: one that destroys the same in session after session is stopped as well.
        session = f"python-{case['name']}-{what}"
        if case.get("url"):
            target = f"{case['url']}/agent/{session}/session/{session}/mcp/{case['server']}"
        else:
            command = [*case["wrapper"], "--agent", session, "--session", session,
                       "--server", case["server"], "--", *case["command"]]
            target = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        if case.get("nameless"):
            # All clients have the same address; only the first one ends.
            target = f"{case['url']}/agent/python-{case['name']}/mcp/{case['server']}"
            # One that opens nothing learns its session with the answer to its first call.
            before = 1 if case["mode"] == "2026-07-28" else 0
            async with Client(target, mode=case["mode"]) as client:
                await stopped(client, everything, before)
        async with Client(target, mode=case["mode"], sampling_callback=model) as client:
            with anyio.fail_after(30):
                match what:
                    case "works":
                        await works(client, everything, modern)
                    case "stopped":
                        await stopped(client, everything)
                    case _:
                        await (follows if what == "follows" else ignores)(client)


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

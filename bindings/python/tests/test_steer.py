"""Steers: the model is told behind a tool's result, or with the next request, and a callback hears it."""

from __future__ import annotations

import asyncio
import json

import deadstop
import httpx
import pytest

STEERS = {"loop": {"steer_at": 3, "block_at": "off", "end_at": "off"}}
LADDER = {"loop": {"steer_at": 3, "block_at": 5, "end_at": 8}}


@pytest.fixture
def session():
    opened = deadstop.session(agent="steered", policy=LADDER)
    yield opened
    opened.restore()


def third(tool, *args):
    """What the third call of a tool gives: the one that is steered."""
    for _ in range(2):
        tool(*args)
    return tool(*args)


def test_text_carries_the_advice_and_the_callback_hears_it():
    heard = []
    session = deadstop.session(agent="steered", policy=LADDER, on_steer=heard.append)
    get_build = session.tool(lambda id: "queued, no runner", name="get_build")
    assert [get_build(7) for _ in range(2)] == ["queued, no runner"] * 2
    told = get_build(7)
    [context] = heard
    assert told == f"queued, no runner\n\n[Deadstop] {context.advice}"
    assert (context.guard, context.verdict) == ("loop", "steer")
    assert "get_build" in context.advice


def test_after_a_compaction_an_agent_may_look_again():
    session = deadstop.session(agent="steered", policy={"loop": {"block_at": 4, "end_at": 50}})
    read = session.tool(lambda path: "the same text", name="read_file")

    def reads():
        for n in range(20):
            try:
                read("a.md")
            except deadstop.DeadstopBlocked:
                return n

    first = reads()
    assert first and reads() == 0
    session.compacted()
    assert reads() == first


def test_an_agent_that_follows_finishes_and_one_that_ignores_it_is_ended(session):
    get_build = session.tool(lambda id: "queued, no runner", name="get_build")
    read_log = session.tool(lambda page: f"what page {page} says", name="read_log")
    while "[Deadstop]" not in get_build(7):
        pass
    assert [read_log(page) for page in "abc"] == [f"what page {page} says" for page in "abc"]
    assert not session.killed

    ignores = deadstop.session(agent="steered", policy=LADDER)
    get_build = ignores.tool(lambda id: "queued, no runner", name="get_build")
    refused = 0
    with pytest.raises(deadstop.DeadstopKilled):
        for _ in range(20):
            try:
                get_build(7)
            except deadstop.DeadstopBlocked:
                refused += 1
    assert ignores.killed and 1 <= refused <= 8


@pytest.mark.parametrize(
    ("result", "note_of"),
    [
        ({"status": "queued"}, lambda told: told["deadstop_note"]),
        ([{"type": "text", "text": "queued"}], lambda told: told[-1]["text"]),
        ({"content": [{"type": "text", "text": "queued"}]}, lambda told: told["content"][-1]["text"]),
    ],
)
def test_dicts_and_blocks_carry_it_and_the_original_stays(session, result, note_of):
    before = json.dumps(result)
    told = third(session.tool(lambda: result, name="look"))
    assert note_of(told).startswith("[Deadstop] ")
    assert json.dumps(result) == before


@pytest.mark.parametrize("result", [None, 7, True, ("a", "b"), [1, 2]])
def test_other_values_stay_as_they_are(session, result):
    heard = []
    session.on_steer(heard.append)
    assert third(session.tool(lambda: result, name="look")) == result
    assert len(heard) == 1


def test_an_error_carries_it(session):
    @session.tool
    def look():
        raise ValueError("no such build")

    for turn in range(3):
        with pytest.raises(ValueError) as caught:
            look()
        assert ("[Deadstop]" in str(caught.value)) == (turn == 2)
    assert str(caught.value).startswith("no such build\n\n[Deadstop] ")


def test_an_awaited_tool_and_one_in_a_scope(session):
    heard = []

    async def main():
        look = session.tool(_queued, name="look")
        async with session.scope("crew", on_steer=heard.append):
            return [await look() for _ in range(3)][-1]

    told = asyncio.run(main())
    assert told.startswith("queued\n\n[Deadstop] ")
    assert heard[0].path[-1] == "crew"


async def _queued():
    return "queued"


def test_a_policy_can_turn_it_off():
    session = deadstop.session(agent="steered", policy={"loop": {"steer_at": "off", "block_at": 5}})
    assert third(session.tool(lambda: "queued", name="look")) == "queued"


def test_an_mcp_result_gets_one_more_block(session):
    types = pytest.importorskip("mcp.types")

    class Client:
        async def call_tool(self, name, arguments=None):
            return types.CallToolResult(content=[types.TextContent(type="text", text="queued")])

    async def main():
        client = session.wrap_mcp(Client())
        return [await client.call_tool("look", {}) for _ in range(3)][-1]

    told = asyncio.run(main())
    assert [block.text[:10] for block in told.content] == ["queued", "[Deadstop]"]


def test_langchain_content_and_artifact(session):
    tools = pytest.importorskip("langchain_core.tools")
    from deadstop.langchain import guard_tools

    @tools.tool(response_format="content_and_artifact")
    def look() -> tuple[str, dict[str, int]]:
        """Looks."""
        return "queued", {"id": 7}

    [guarded] = guard_tools(session, [look])
    content, artifact = third(guarded.func)
    assert content.startswith("queued\n\n[Deadstop] ") and artifact == {"id": 7}


def test_a_tool_without_a_guard_is_steered_with_the_next_request():
    """A guarded client alone: the results come with the requests, and so does the advice."""
    sent = []

    def answer(request):
        sent.append(request.content)
        call = {"id": f"c{len(sent)}", "type": "function"}
        call["function"] = {"name": "get_build", "arguments": '{"id":7}'}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        return httpx.Response(200, json={"choices": [{"message": message}], "usage": usage})

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="https://api.openai.com")
    session = deadstop.guard(client, agent="steered", policy=STEERS)
    messages = [{"role": "user", "content": "is the build green?"}]
    for _ in range(10):
        body = {"model": "gpt-4o", "messages": messages}
        said = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
        messages.append(said)
        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "queued"}
        messages.append(result)
    session.restore()
    assert [b"[Deadstop]" in body for body in sent] == [False] * 3 + [True] * 7
    for before, after in zip(sent, sent[1:]):
        # The prompt's prefix stays byte for byte: all but the brackets that close the body.
        assert after.startswith(before.rstrip(b"]} "))

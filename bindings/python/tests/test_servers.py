"""One process, many users: a session for each request over one shared client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import pathlib
import re

import deadstop
import httpx
import pytest

from conftest import ask, eventually


def test_a_session_for_each_request_over_one_shared_client(async_client):
    original = async_client
    client = deadstop.share(original)
    assert type(client) is type(original) and client is not original

    async def handle(n):
        limit = 1 if n % 2 else 30
        async with deadstop.session(agent="support", session=f"r{n}", max_model_calls=limit) as session:
            assert deadstop.current_session() is session
            answered = 0
            try:
                for _ in range(3):
                    await ask(client)
                    answered += 1
            except deadstop.DeadstopKilled as killed:
                assert killed.context.who == f"support/r{n}"
            # A client that lost its connection tries again, which is one more call.
            assert session.get_state().model_calls >= answered and (n % 2 or answered == 3)
            return session

    async def main():
        return await asyncio.gather(*(handle(n) for n in range(200)))

    sessions = asyncio.run(main())
    assert [session.killed for session in sessions] == [bool(n % 2) for n in range(200)]
    assert deadstop.current_session() is None
    assert "send" not in original._client.__dict__


def resident():
    """What the process holds, in MiB."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        pytest.skip("there is no /proc")
    return int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]) / 1024


def test_memory_stays_flat_over_ten_thousand_sessions():
    class Quiet(httpx.BaseTransport):
        def handle_request(self, request):
            return httpx.Response(200, json={"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    client = deadstop.share(httpx.Client(transport=Quiet()))
    tool = deadstop.session(agent="memory").tool(lambda n: n, name="look")

    def serve(numbers):
        for n in numbers:
            with deadstop.session(agent="memory", session=f"m{n}", max_model_calls=5) as session:
                body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"question {n}"}]}
                client.post("https://api.openai.com/v1/chat/completions", json=body)
                session.tool(tool, name="look")(n)
        gc.collect()
        return resident()

    # The allocator and the caches of other libraries fill first.
    before = serve(range(2_000))
    after = serve(range(2_000, 10_000))
    assert after - before < 4, f"{before:.1f} MiB before, {after:.1f} MiB after"


def test_windows_of_providers_are_read_from_answers():
    headers = {
        "Anthropic-RateLimit-Unified-5h-Utilization": "0.62",
        "anthropic-ratelimit-unified-5h-reset": "4102444800",
        "x-request-id": "r",
    }
    answer = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "claude",
              "usage": {"input_tokens": 1, "output_tokens": 1}}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer, headers=headers))
    session = deadstop.session(agent="writer")
    assert session.get_quotas() == []
    client = session.guarded(httpx.Client(transport=transport))
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    client.post("https://api.anthropic.com/v1/messages", json=body)
    [found] = session.get_quotas()
    assert (found.window, found.used, found.resets_ms) == ("5h", 0.62, 4102444800000)


def test_a_shared_client_outside_of_every_session(openai_client):
    client = deadstop.share(openai_client)
    with pytest.raises(deadstop.DeadstopError, match="outside of every session"):
        client.with_options(max_retries=0).chat.completions.create(model="gpt-4o-plain", messages=[])
    with pytest.raises(deadstop.DeadstopError, match="guard the original"):
        deadstop.guard(client, agent="a")
    assert ask(openai_client).choices


def test_threads_of_a_pool_have_their_requests_sessions(openai_client):
    client = deadstop.share(openai_client)

    def handle(n):
        with deadstop.session(agent="a", session=f"t{n}") as session:
            ask(client)
            return session.get_state().model_calls

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(handle, range(12))) == [1] * 12


def test_a_guarded_copy_leaves_the_original_alone(openai_client):
    first, second = deadstop.session(agent="a"), deadstop.session(agent="b")
    one, two = first.guarded(openai_client), second.guarded(openai_client)
    ask(one)
    first.kill("enough")
    with pytest.raises(deadstop.DeadstopKilled):
        ask(one)
    ask(two)
    ask(openai_client)
    assert (first.get_state().model_calls, second.get_state().model_calls) == (1, 1)
    # A copy that is collected does not close the connections of the others.
    del one
    gc.collect()
    ask(two)
    ask(openai_client)


def test_requests_that_their_callers_drop_end_no_session():
    session = deadstop.session(agent="a", policy="strict")

    @session.tool
    async def slow(n: int) -> int:
        await asyncio.sleep(60)
        return n

    async def main():
        for n in range(5):
            task = asyncio.create_task(slow(n))
            while session.get_state().in_flight == 0:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    state = session.get_state()
    assert not session.killed and (state.in_flight, state.steps) == (0, 5)


def test_calls_in_flight_are_booked_when_a_limit_trips():
    session = deadstop.session(agent="a", max_steps=10, policy={"loop": {"enabled": False}})
    go = asyncio.Event()

    @session.tool
    async def slow(n: int) -> int:
        await go.wait()
        return n

    async def main():
        tasks = [asyncio.create_task(slow(n)) for n in range(10)]
        while session.get_state().in_flight < 10:
            await asyncio.sleep(0)
        with pytest.raises(deadstop.DeadstopKilled):
            await slow(10)
        go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ends = asyncio.run(main())
    assert session.killed and len(ends) == 10
    state = session.get_state()
    assert (state.in_flight, state.steps) == (0, 10)


def test_a_session_that_was_killed_is_opened_as_a_killed_one(serve):
    server = serve()
    first = deadstop.session(agent="a", session="s", server=server.url)
    server.ask("POST", "/api/kill", {"agent": "a", "session": "s", "reason": "enough"})
    eventually(lambda: first.killed)
    with pytest.raises(deadstop.DeadstopKilled) as dead:
        deadstop.session(agent="a", session="s", server=server.url)
    assert not isinstance(dead.value, Exception)


def test_a_cleared_agent_goes_on(serve):
    server = serve()
    session = deadstop.session(agent="a", session="s", server=server.url)
    look = session.tool(lambda n: n, name="look")
    assert look(1) == 1
    server.ask("POST", "/api/kill", {"agent": "a", "reason": "enough"})
    eventually(lambda: session.killed)
    with pytest.raises(deadstop.DeadstopKilled):
        look(2)
    server.ask("POST", "/api/clear", {"agent": "a", "reason": "fine again"})
    eventually(lambda: not session.killed)
    assert look(3) == 3

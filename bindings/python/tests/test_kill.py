"""The kill switch of seed B: kill, what comes after, and recovery."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import json
import os
import signal
import threading
import time

import backoff
import deadstop
import pytest
import tenacity
from deadstop import _stopping

from conftest import ask, eventually

ASK = [{"role": "user", "content": "Continue processing"}]


def test_the_walk_through(openai_client, provider):
    kind = type(openai_client)
    session = deadstop.guard(openai_client, agent="my-agent", policy="strict", mode="enforce")
    assert session.client is openai_client and type(session.client) is kind
    answer = ask(session.client)
    assert answer.choices[0].message.content.startswith("The quick")
    assert session.get_state().input_tokens == 11 and session.get_state().output_tokens == 23

    with pytest.raises(deadstop.DeadstopError, match="already guarded"):
        deadstop.guard(openai_client, agent="my-agent")
    with pytest.raises(deadstop.DeadstopError, match="already guarded"):
        deadstop.guard(openai_client.with_options(timeout=3), agent="my-agent")

    session.kill("it deletes my mail")
    version = session.get_state().state_version
    for _ in range(2):
        with pytest.raises(deadstop.DeadstopKilled, match="it deletes my mail") as caught:
            ask(session.client)
    assert caught.value.context.who == f"my-agent/{session.name}"
    assert caught.value.context.input_tokens_spent == 11
    assert caught.value.reason == "session_killed"
    state = session.get_state()
    assert state.killed and state.state_version == version
    health = session.get_health()
    assert (health.killed, health.authority_state, health.status) == (True, "killed", "inactive")
    assert health.durability == "process"

    session.restore()
    assert "send" not in openai_client._client.__dict__
    assert ask(openai_client).choices
    recovery = deadstop.guard(openai_client, agent="my-agent", mode="log-only")
    assert ask(recovery.client).choices
    recovery.restore()


def test_strikes_end_the_session():
    session = deadstop.session(
        agent="a",
        policy={
            "access": {"deny": ["rm"]},
            "session_limits": {"circuit_breaker": {"consecutive_blocks": 3}},
        },
    )
    rm = session.tool(name="rm")(lambda: None)
    for _ in range(2):
        with pytest.raises(deadstop.DeadstopBlocked):
            rm()
    with pytest.raises(deadstop.DeadstopKilled):
        rm()
    assert session.killed


def test_a_kill_is_no_exception(openai_client):
    session = deadstop.guard(openai_client, agent="a", max_model_calls=1)
    tries = []

    def work():
        tries.append(1)
        return ask(session.client)

    work()
    stubborn = [
        tenacity.retry(stop=tenacity.stop_after_attempt(5))(work),
        backoff.on_exception(backoff.constant, Exception, max_tries=5, interval=0)(work),
    ]
    for retried in stubborn:
        tries.clear()
        with pytest.raises(deadstop.DeadstopKilled):
            try:
                retried()
            except Exception:  # what an agent's loop does
                pytest.fail("it was swallowed")
        assert len(tries) == 1
    session.restore()


def test_openai_and_anthropic_do_not_retry(openai_client, anthropic_client):
    """Neither a kill nor a block, which comes as an error of theirs, so that it is not wrapped."""
    import anthropic
    import openai

    policy = {"access": {"deny": ["get_weather"]}, "strikes": {"enabled": False}}
    told = []
    for client, base in ((openai_client, openai.OpenAIError), (anthropic_client, anthropic.AnthropicError)):
        session = deadstop.guard(client, agent="a", policy=policy, on_tripped=told.append)
        told.clear()
        with pytest.raises(deadstop.DeadstopBlocked, match="get_weather") as caught:
            if base is openai.OpenAIError:
                ask(client, "gpt-4o-tool")
            else:
                client.messages.create(model="claude-tool", max_tokens=9, messages=ASK)
        assert isinstance(caught.value, base)
        assert len(told) == 1
        session.kill("x")
        with pytest.raises(deadstop.DeadstopKilled):
            if base is openai.OpenAIError:
                ask(client)
            else:
                client.messages.create(model="claude-plain", max_tokens=9, messages=ASK)
        session.restore()


def killing(session, after):
    """Kills once something is in flight."""

    def run():
        eventually(after)
        session.kill("STOP")

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("connection", ["new", "free"])
def test_a_call_that_waits_is_cancelled(openai_client, monkeypatch, connection):
    session = deadstop.guard(openai_client, agent="a")
    if connection == "free":
        # Then it waits on the caller's own thread, and its connection is shut.
        ask(session.client)
        monkeypatch.setattr(_stopping, "run", lambda *_: pytest.fail("it went through a helper thread"))
    thread = killing(session, lambda: session.get_state().in_flight == 1)
    began = time.monotonic()
    with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
        ask(session.client, "gpt-4o-endless")
    assert time.monotonic() - began < 30, "the provider would have taken a minute"
    thread.join()
    session.restore()


def test_only_the_connection_of_the_killed_call_is_shut(openai_client):
    """Two sessions share the connections of one client."""
    sessions = [deadstop.session(agent="a") for _ in range(2)]
    clients = [session.guarded(openai_client) for session in sessions]
    ended: list[object] = []

    def run(client):
        try:
            ended.append(ask(client, "gpt-4o-endless"))
        except BaseException as error:
            ended.append(error)

    # Two connections, both free in the second round.
    for _ in range(2):
        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        eventually(lambda: all(session.get_state().in_flight == 1 for session in sessions))
        sessions[0].kill("STOP")
        threads[0].join(30)
        assert isinstance(ended[-1], deadstop.DeadstopKilled) and len(ended) == 1
        assert threads[1].is_alive() and sessions[1].get_state().in_flight == 1
        sessions[1].kill("STOP")
        threads[1].join(30)
        assert [type(one) for one in ended] == [deadstop.DeadstopKilled] * 2
        ended.clear()
        # What was shut is not used again; these two make two new connections.
        sessions = [deadstop.session(agent="a") for _ in range(2)]
        clients = [session.guarded(openai_client) for session in sessions]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(ask, clients))


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_stream_ends(openai_client, anthropic_client, kind):
    client = openai_client if kind == "openai" else anthropic_client
    session = deadstop.guard(client, agent="a")
    got = []
    with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
        if kind == "openai":
            stream = ask(client, "gpt-4o-endless", stream=True)
        else:
            stream = client.messages.create(
                model="claude-endless", max_tokens=9, messages=ASK, stream=True
            )
        for event in stream:
            got.append(event)
            if len(got) == 3:
                threading.Timer(0.05, session.kill, ["STOP"]).start()
    assert len(got) >= 3
    assert session.get_state().killed
    session.restore()


def test_async_calls_and_streams_are_cancelled(async_client):
    async def main():
        session = deadstop.guard(async_client, agent="a")

        async def wait():
            await ask(async_client, "gpt-4o-endless")

        async def stream():
            async for _ in await ask(async_client, "gpt-4o-endless", stream=True):
                pass

        @session.tool
        async def sleep():
            await asyncio.sleep(600)

        tasks = [asyncio.create_task(work()) for work in (wait, stream, sleep)]
        while session.get_state().in_flight < 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        threading.Thread(target=session.kill, args=["STOP"]).start()
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert [type(error) for error in done] == [deadstop.DeadstopKilled] * 3, done
        # A task that was not cancelled from outside is not cancelled.
        await asyncio.sleep(0)
        session.restore()

    asyncio.run(main())


def test_a_task_that_is_cancelled_stays_cancelled(async_client):
    async def main():
        session = deadstop.guard(async_client, agent="a")
        task = asyncio.create_task(ask(async_client, "gpt-4o-endless"))
        while session.get_state().in_flight < 1:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.get_state().in_flight == 0 and not session.killed
        session.restore()

    asyncio.run(main())


def test_from_a_signal_handler(openai_client):
    session = deadstop.guard(openai_client, agent="a")
    before = signal.signal(signal.SIGUSR1, lambda *_: session.kill("a signal"))
    try:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(deadstop.DeadstopKilled, match="a signal"):
            for _ in ask(session.client, "gpt-4o-endless", stream=True):
                pass
    finally:
        signal.signal(signal.SIGUSR1, before)
        session.restore()


def test_a_stream_that_nobody_wants_is_settled(openai_client):
    session = deadstop.guard(openai_client, agent="a")
    stream = ask(session.client, "gpt-4o-endless", stream=True)
    events = iter(stream)
    [next(events) for _ in range(5)]
    assert session.get_state().in_flight == 1
    del stream, events
    gc.collect()
    eventually(lambda: session.get_state().in_flight == 0)
    assert session.get_state().output_tokens > 0
    session.restore()


def test_a_stream_brings_what_it_brought_before(openai_client):
    def chunks():
        return [chunk.to_dict() for chunk in ask(openai_client, stream=True)]

    plain = chunks()
    session = deadstop.guard(openai_client, agent="a")
    guarded = chunks()
    # The usage was asked for on the quiet: until the last chunk, which is kept back, it is null.
    assert all(chunk.pop("usage") is None for chunk in guarded)
    assert guarded == plain
    assert session.get_state().output_tokens == 23
    session.restore()


def test_what_is_read_as_a_whole_may_come_packed(openai_client, async_client):
    """A document is judged unpacked. What is read in pieces is asked for as it is, since pieces that are packed
    could not be judged."""
    model = {"model": "gpt-4o-gzip-plain", "messages": ASK}
    session = deadstop.guard(openai_client, agent="a")
    raw = session.client.chat.completions.with_raw_response.create(**model)
    assert raw.headers["content-encoding"] == "gzip"
    assert session.get_state().output_tokens == 23
    with session.client.chat.completions.with_streaming_response.create(**model) as pieces:
        assert "content-encoding" not in pieces.headers
        assert json.loads(b"".join(pieces.iter_bytes()))["usage"]["completion_tokens"] == 23
    assert session.get_state().output_tokens == 46
    assert len(list(ask(session.client, model["model"], stream=True))) > 1
    assert session.get_state().output_tokens == 69
    session.attach(async_client)
    assert asyncio.run(async_client.chat.completions.create(**model)).usage.completion_tokens == 23
    assert session.get_state().output_tokens == 92
    session.restore()


def test_captures_are_flushed(openai_client, tmp_path):
    file = tmp_path / "captures.jsonl"
    session = deadstop.guard(openai_client, agent="a", captures=file)
    ask(session.client)
    session.kill("enough")
    lines = file.read_text().splitlines()
    assert len(lines) >= 3 and '"what":"killed"' in lines[-1]
    assert session.get_captures()[0]["what"] == "admitted"
    session.restore()

"""Statements of the kill switch's and the token limits' pages that once did not hold."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import threading
import time

import deadstop
import httpx
import openai
import pytest
import tenacity

from conftest import ask, eventually


def killed_tool(reason="enough"):
    session = deadstop.session(agent="a")
    tries = []

    @session.tool
    def work():
        tries.append(1)

    session.kill(reason)

    def call():
        tries.append(1)
        return work()

    return call, tries


@pytest.mark.parametrize(
    "predicate",
    [
        tenacity.retry_if_not_exception_type(ValueError),
        tenacity.retry_unless_exception_type(ValueError),
        tenacity.retry_if_exception(lambda error: True),
        tenacity.retry_if_exception_message(match=".*"),
        tenacity.retry_always if hasattr(tenacity, "retry_always") else tenacity.retry_if_exception(bool),
    ],
)
def test_no_predicate_of_tenacity_retries_a_kill(predicate):
    call, tries = killed_tool()
    options = dict(retry=predicate, stop=tenacity.stop_after_attempt(5), retry_error_callback=lambda _: "fallback")
    with pytest.raises(deadstop.DeadstopKilled):
        tenacity.retry(**options)(call)()
    assert len(tries) == 1
    with pytest.raises(deadstop.DeadstopKilled):
        for attempt in tenacity.Retrying(**options):
            with attempt:
                call()
    assert len(tries) == 2

    async def later():
        return call()

    with pytest.raises(deadstop.DeadstopKilled):
        asyncio.run(tenacity.retry(**options)(later)())
    assert len(tries) == 3


def test_tenacity_still_retries_everything_else():
    tries = []

    @tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)
    def work():
        tries.append(1)
        raise ValueError

    killed_tool()[0]
    with pytest.raises(ValueError):
        work()
    assert len(tries) == 3


def answering(input_tokens, output_tokens):
    """A client whose provider says that an answer took so many tokens."""
    usage = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens, "total_tokens": 0}
    said = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    body = {"id": "c", "object": "chat.completion", "created": 0, "model": "gpt-4o", "choices": [said], "usage": usage}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=body))
    return openai.OpenAI(api_key="k", http_client=httpx.Client(transport=transport))


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        ((2_000, 61_000), "input_and_output_exceeded"),
        ((10, 61_000), "output_exceeded"),
        ((2_000, 10), "input_exceeded"),
    ],
)
def test_the_frozen_state_has_the_answer_that_killed(used, reason):
    limits = {"input_token_limit": 1000, "output_token_limit": 1000}
    session = deadstop.guard(answering(*used), agent="a", session="s", **limits)
    with pytest.raises(deadstop.DeadstopKilled) as caught:
        ask(session.client)
    at = caught.value.context
    assert (at.reason, at.input_tokens_spent, at.output_tokens_spent) == (reason, *used)
    assert (at.accumulated_input_tokens, at.accumulated_output_tokens) == used
    assert (at.who, at.path, at.guard, at.verdict) == ("a/s", ["a", "s"], "tokens", "kill")
    told = f"[{reason} | input_tokens={used[0]} | output_tokens={used[1]} | elapsed_ms="
    assert told in str(caught.value)
    state = session.get_state()
    assert (state.input_tokens, state.output_tokens, state.in_flight) == (*used, 0)
    with pytest.raises(deadstop.DeadstopKilled) as later:
        ask(session.client)
    assert (later.value.reason, later.value.trip.code) == (reason, "session_killed_tokens")
    session.restore()


def test_limits_that_are_not_given_stay():
    session = deadstop.session(agent="a", max_cost_usd=5, max_model_calls=7)
    session.set_limits(max_steps=100)
    known = {name: limit for name, limit in session.get_limits().items() if limit is not None}
    assert known == {"max_cost_usd": 5.0, "max_model_calls": 7, "max_steps": 100}
    session.clear_limits("max_cost_usd")
    assert session.get_limits()["max_cost_usd"] is None and session.get_limits()["max_steps"] == 100
    session.clear_limits()
    assert not any(session.get_limits().values())
    with pytest.raises(deadstop.DeadstopError, match="there is no limit `max_stpes`"):
        session.clear_limits("max_stpes")
    for bad in (float("nan"), float("inf")):
        with pytest.raises(deadstop.DeadstopError, match="max_cost_usd: .* is not a limit"):
            session.set_limits(max_cost_usd=bad)
        with pytest.raises(deadstop.DeadstopError, match="max_steps: .* is not a limit"):
            session.set_limits(max_steps=bad)


def test_threads_and_executors_inherit_scopes():
    session = deadstop.session(agent="a")
    look = session.tool(name="look")(lambda n: n)
    outside = concurrent.futures.ThreadPoolExecutor(1)
    outside.submit(lambda: None).result()
    with session.scope("crew") as crew:
        thread = threading.Thread(target=look, args=(0,))
        thread.start()
        thread.join()
        outside.submit(look, 1).result()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert list(pool.map(look, [2, 3])) == [2, 3]
        asyncio.run(_in_executor(look))

        class Own(threading.Thread):
            def run(self):
                look(5)

        own = Own()
        own.start()
        own.join()
    assert crew.get_figures()["steps"] == 6
    # A pool's thread that was started inside a scope does not stay there.
    inside = concurrent.futures.ThreadPoolExecutor(1)
    with crew:
        inside.submit(look, 6).result()
    inside.submit(look, 7).result()
    outside.submit(look, 8).result()
    assert crew.get_figures()["steps"] == 7
    assert session.get_state().steps == 9


async def _in_executor(look):
    await asyncio.get_running_loop().run_in_executor(None, look, 4)


def test_a_callback_is_called_once_per_trip_with_the_context():
    told = []
    session = deadstop.session(agent="a", session="s", on_tripped=told.append, max_steps=1)
    look = session.tool(name="look")(lambda: None)
    look()
    for _ in range(3):
        with pytest.raises(deadstop.DeadstopKilled):
            look()
    assert len(told) == 1
    context = told[0]
    assert isinstance(context, deadstop.KillContext)
    assert (context.who, context.reason, context.guard, context.verdict) == ("a/s", "max_steps", "steps", "kill")
    assert context.elapsed_ms >= 0 and context.message.startswith("stopped: ")


def test_a_warning_is_no_trip_and_a_callback_does_not_call_itself():
    told = []
    session = deadstop.session(agent="a", policy={"access": {"deny": ["rm"]}, "strikes": {"enabled": False},
                                                  "loop": {"action": "warn"}})
    rm, look = session.tool(name="rm")(lambda: None), session.tool(name="look")(lambda: "same")

    def callback(context):
        told.append(context)
        with pytest.raises(deadstop.DeadstopBlocked):
            rm()

    session.on_tripped(callback)
    for _ in range(12):
        look()
    assert not told, "warnings are no trips"
    with pytest.raises(deadstop.DeadstopBlocked):
        rm()
    assert len(told) == 1


def test_async_callbacks_run():
    told = []

    def opened():
        session = deadstop.session(agent="a", policy={"access": {"deny": ["rm"]}, "strikes": {"enabled": False}})
        rm = session.tool(name="rm")(lambda: None)

        async def callback(context):
            await asyncio.sleep(0)
            told.append(context.reason)
            with pytest.raises(deadstop.DeadstopBlocked):
                rm()

        session.on_tripped(callback)
        return rm

    rm = opened()
    with pytest.raises(deadstop.DeadstopBlocked):
        rm()
    eventually(lambda: len(told) == 1)

    async def inside():
        rm = opened()
        with pytest.raises(deadstop.DeadstopBlocked):
            rm()
        while len(told) < 2:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(inside(), 60))
    time.sleep(0.05)
    assert told == ["tool_denied"] * 2


class Hung:
    """A server that opens sessions and then never answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.held = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        body = json.dumps({"agent": "a", "session": "s", "policy": {}}).encode()
        first = True
        while True:
            connection, _ = self.listener.accept()
            if first:
                connection.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                connection.close()
                first = False
            self.held.append(connection)


def test_a_kill_ends_a_call_that_waits_for_a_hung_server():
    server = Hung()
    session = deadstop.session(agent="a", session="s", server=server.url)
    look = session.tool(name="look")(lambda: None)
    asked = len(server.held)
    outcome = []

    def call():
        try:
            look()
        except deadstop.DeadstopKilled as killed:
            outcome.append((time.monotonic(), killed))

    thread = threading.Thread(target=call)
    thread.start()
    eventually(lambda: len(server.held) > asked)
    time.sleep(0.1)
    began = time.monotonic()
    threading.Thread(target=session.kill, args=("STOP",)).start()
    thread.join(20)
    assert outcome and "STOP" in str(outcome[0][1])
    assert outcome[0][0] - began < 2

    async def in_a_loop():
        began = time.monotonic()
        session.kill("again")
        return time.monotonic() - began

    assert asyncio.run(in_a_loop()) < 1, "inside a loop a kill does not wait"
    assert session.get_health().durability == "pending"


def test_a_kill_survives_the_process_and_opening_raises_it(serve):
    server = serve()
    port = int(server.url.rsplit(":", 1)[1])
    program = (
        "import deadstop, os, sys\n"
        f"session = deadstop.session(agent='a', session='s1', server={server.url!r})\n"
        "print('open', flush=True); sys.stdin.readline()\n"
        "session.kill('STOP'); os._exit(0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=os.environ)
    assert process.stdout.readline() == "open\n"
    server.stop()
    process.communicate("\n", timeout=60)
    server = serve(port=port)
    with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
        deadstop.session(agent="a", session="s1", server=server.url)
    other = deadstop.session(agent="a", session="s2", server=server.url)
    other.restore()


def test_cancellations_are_no_strikes(async_client):
    session = deadstop.guard(async_client, agent="a", policy={"strikes": {"consecutive_errors": 3}})

    async def main():
        for _ in range(5):
            task = asyncio.create_task(ask(session.client, "gpt-4o-endless"))
            while session.get_state().in_flight == 0:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return await ask(session.client)

    assert asyncio.run(main()).choices
    assert not session.killed and session.get_state().in_flight == 0
    session.restore()


def test_the_version_is_told():
    assert deadstop.__version__.count(".") == 2

"""Forks, copies, collections, callbacks and ends of the interpreter, while something is under way."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading

import deadstop
import pytest
from conftest import ask, eventually

#: Nothing may hang: whatever waits in these programs would wait for minutes.
PATIENCE = 120


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


BEGIN = """
import os, sys, threading, time
import deadstop, openai

session = deadstop.guard(
    openai.OpenAI(api_key="k", base_url=sys.argv[1] + "/v1", max_retries=0), agent="t"
)
look = session.tool(name="look")(lambda n: n)

def ask(**more):
    return session.client.chat.completions.create(
        model="gpt-4o-endless", messages=[{"role": "user", "content": "hi"}], **more
    )

def until(check):
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end
        time.sleep(0.005)
"""

FORK_AMID_CALLS = BEGIN + """
ended = []

def wait():
    try:
        ask()
    except deadstop.DeadstopKilled as killed:
        ended.append(str(killed))

waiting = threading.Thread(target=wait)
waiting.start()
stream = iter(ask(stream=True))
next(stream)
until(lambda: session.get_state().in_flight == 2)
child = os.fork()
if child == 0:
    # Calls in flight stay with the parent; the copy works, and dies alone.
    if look(1) != 1 or session.killed:
        os._exit(2)
    session.kill("the child")
    try:
        look(2)
    except deadstop.DeadstopKilled:
        os._exit(7)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert not session.killed and session.get_state().steps == 0
assert session.get_state().in_flight >= 1 and look(3) == 3
session.kill("the parent")
waiting.join(60)
assert len(ended) == 1 and "the parent" in ended[0], ended
# Read to its end: Python 3.13.0 crashes where httpx notes a time while the interpreter ends.
try:
    for _ in stream:
        pass
except deadstop.DeadstopKilled:
    print("well")
"""


def test_fork_while_calls_are_in_flight(provider):
    done = run(FORK_AMID_CALLS, provider)
    assert (done.returncode, done.stdout) == (0, "well\n"), done


FORK_WITH_SERVER = """
import os, sys
import deadstop
session = deadstop.session(agent="a", session="s", server=sys.argv[1])
look = session.tool(name="look")(lambda n: n)
look(1)
child = os.fork()
look(2 if child else 3)
session.flush(60)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("well")
"""


def test_both_halves_of_a_fork_are_the_servers(serve):
    server = serve('[loop]\nenabled = false\n')
    done = run(FORK_WITH_SERVER, server.url)
    assert (done.returncode, done.stdout) == (0, "well\n"), done

    def all_told():
        live = server.ask("GET", "/api/sessions/a/s")["live"]
        return (live["steps"], live["in_flight"]) == (3, 0)

    eventually(all_told, 60)


def test_a_session_is_pickled_while_a_stream_is_open(serve, openai_client):
    server = serve("")
    session = deadstop.guard(openai_client, agent="a", session="s", server=server.url)
    stream = iter(ask(session.client, "gpt-4o-endless", stream=True))
    next(stream)
    copy = pickle.loads(pickle.dumps(session))
    assert (copy.agent, copy.name, copy.client) == ("a", "s", None)
    copy.kill("by its copy")
    with pytest.raises(deadstop.DeadstopKilled, match="by its copy"):
        for _ in stream:
            pass
    session.restore()


def test_an_async_stream_that_is_collected_is_settled(async_client):
    session = deadstop.guard(async_client, agent="a")

    async def main():
        stream = await ask(session.client, "gpt-4o-endless", stream=True)
        events = stream.__aiter__()
        for _ in range(5):
            await events.__anext__()
        assert session.get_state().in_flight == 1
        del stream, events
        gc.collect()
        # Generators that are awaited end in the loop.
        until = asyncio.get_running_loop().time() + 60
        while session.get_state().in_flight:
            assert asyncio.get_running_loop().time() < until
            await asyncio.sleep(0.005)
            gc.collect()

    asyncio.run(main())
    assert session.get_state().output_tokens > 0
    session.restore()


def test_a_session_is_collected_while_a_stream_is_open(openai_client):
    session = deadstop.guard(openai_client, agent="a")
    stream = iter(ask(openai_client, "gpt-4o-endless", stream=True))
    next(stream)
    session = session._native  # what counts, without what a user holds
    gc.collect()
    assert next(stream) and session.state()["in_flight"] == 1
    session.kill("all the same")
    with pytest.raises(deadstop.DeadstopKilled, match="all the same"):
        for _ in stream:
            pass


class Rude(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, Rude])
def test_what_a_callback_raises_is_reported_and_changes_nothing(monkeypatch, error):
    reported, told = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_type))
    session = deadstop.session(agent="t", max_steps=1)

    def on_tripped(trip):
        # It may look, and even order; it is on the thread that tripped.
        assert session.get_state().steps == 1 and threading.current_thread().name
        session.kill("too late: the first reason stays")
        told.append(trip.reason)
        raise error("oops")

    session.on_tripped(on_tripped)
    session.on_tripped(lambda trip: told.append("another"))
    look = session.tool(name="look")(lambda n: n)
    look(1)
    with pytest.raises(deadstop.DeadstopKilled, match="all 1 tool calls"):
        look(2)
    assert told[:2] == ["max_steps", "another"] and reported[0] is error, (told, reported)
    assert "all 1 tool calls" in session.get_state().kill_reason


ENDS_AMID_CALLS = BEGIN + """
def wait():
    ask()

threading.Thread(target=wait, daemon=True).start()
stream = iter(ask(stream=True))
next(stream)
session.on_tripped(lambda trip: 1 / 0)
until(lambda: session.get_state().in_flight == 2)
print("well", flush=True)
if sys.argv[2] == "kill":
    session.kill("at the end")
if sys.argv[2] == "raise":
    raise KeyError("an agent's own")
"""


@pytest.mark.parametrize("how", ["return", "kill", "raise"])
def test_the_interpreter_ends_amid_calls(provider, how):
    done = run(ENDS_AMID_CALLS, provider, how)
    assert (done.returncode, done.stdout) == (1 if how == "raise" else 0, "well\n"), done
    assert "Fatal" not in done.stderr and "panicked" not in done.stderr, done.stderr


def test_the_interpreter_ends_while_its_server_hangs():
    """At the end reports are sent, but a server that does not answer is not waited for."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        program = """
import deadstop, sys
session = deadstop.session(agent="a", session="s", server=sys.argv[1])
assert session.tool(name="look")(lambda n: n)(1) == 1
assert session.get_health().authority_state == "unreachable"
print("well")
"""
        done = run(program, url, DEADSTOP_PATIENCE="1")
    assert (done.returncode, done.stdout) == (0, "well\n"), done

"""The containers of seed C, tools, and many calls at once."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import deadstop
import pytest

KINDS = {
    # Container: its children, and whether they run side by side.
    "pipeline": ([], False),
    "pipe": (["pipeline"], False),
    "connector": (["branch a", "branch b"], False),
    "multi connector": (["connector 1", "connector 2"], True),
    "splitter": (["pipeline 1", "pipeline 2", "pipeline 3"], True),
    "manifold": (["manager", "worker 1", "worker 2"], False),
    "junction": (["moderator", "participant 1", "participant 2"], False),
    "distribution grid": (["router", "worker 1", "worker 2"], True),
}


def think(client):
    """Eleven tokens in, twenty-three out."""
    return client.chat.completions.create(
        model="gpt-4o-plain", messages=[{"role": "user", "content": "go on"}]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_containers(openai_client, kind):
    children, parallel = KINDS[kind]
    told = []

    def on_tripped(trip):
        told.append(trip)
        raise RuntimeError("a callback cannot prevent anything")

    session = deadstop.guard(openai_client, agent="t", policy={"text_loop": {"enabled": False}, "strikes": {"enabled": False}})
    with session.scope(kind, on_tripped=on_tripped) as container:
        container.set_limits(output_token_limit=60)  # after construction
        scopes = [session.scope(child) for child in children] or [container]

    def work(scope):
        with scope:
            try:
                for _ in range(1000):
                    try:
                        think(session.client)
                    except deadstop.DeadstopBlocked:  # until others in flight are done
                        time.sleep(0.001)
            except Exception:
                pytest.fail("an agent's own handler swallowed it")

    ended = []

    def top(scope):
        try:
            work(scope)
        except deadstop.DeadstopKilled as killed:  # at the top level only
            ended.append(killed)

    if parallel:
        threads = [threading.Thread(target=top, args=[scope]) for scope in scopes]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    else:
        [top(scope) for scope in scopes]
    assert len(ended) == len(scopes)
    first = next(e for e in ended if e.reason == "output_exceeded")
    context = first.context
    assert (context.path[-1], context.depth, context.kind) == (kind, 1, "nested")
    assert context.output_tokens_spent == context.accumulated_output_tokens >= 23
    assert told and told[0].reason == "output_exceeded"
    # What is beside the container goes on.
    assert think(session.client).choices
    session.restore()


def test_nested_scopes_and_tasks():
    session = deadstop.session(agent="t")

    @session.tool
    async def look(n: int) -> str:
        await asyncio.sleep(0)
        return f"seen {n}"

    async def worker(name, times):
        async with session.scope(name, max_steps=2):
            for n in range(times):
                await look(n)

    async def main():
        async with session.scope("crew", max_steps=9):
            return await asyncio.gather(
                worker("a", 2), worker("b", 3), worker("c", 1), return_exceptions=True
            )

    a, b, c = asyncio.run(main())
    assert a is None and c is None
    assert isinstance(b, deadstop.DeadstopKilled)
    assert (b.context.path[-1], b.context.depth) == ("b", 2)
    figures = {tuple(scope["path"]): scope["steps"] for scope in session.get_state().scopes}
    assert figures[("crew",)] == 5 and figures[("crew", "a")] == 2


def test_threads_know_the_scope_they_are_given():
    session = deadstop.session(agent="t")
    look = session.tool(lambda: 1)
    with session.scope("crew") as crew, ThreadPoolExecutor(2) as pool:
        pool.submit(session.bind(look)).result()
        pool.submit(crew.run, look).result()
        pool.submit(look).result()
    assert crew.get_figures()["steps"] == 3 and session.get_state().steps == 3


def test_tools_keep_their_faces():
    session = deadstop.session(agent="t")

    @session.tool
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    import inspect

    assert add(1) == 3 and add.__doc__ == "Adds." and add.__name__ == "add"
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert session.tool(add) is add

    @session.tool(name="fails")
    def broken():
        raise ValueError("no")

    with pytest.raises(ValueError):
        broken()
    assert [c["name"] for c in session.get_captures() if c["what"] == "settled"] == ["add", "fails"]


def test_a_loop_is_stopped():
    session = deadstop.session(agent="janitor", policy="strict")

    @session.tool
    def delete_asset(asset_id):
        return "asset still exists"

    with pytest.raises(deadstop.DeadstopKilled, match="delete_asset on asset_id=fact_sales 3 times"):
        for _ in range(10):
            delete_asset("fact_sales")
    assert session.get_state().steps == 2


def test_log_only_tells_and_refuses_nothing():
    told = []
    session = deadstop.session(agent="j", policy="strict", mode="log-only", on_tripped=told.append)
    delete = session.tool(name="delete_asset")(lambda asset_id: "asset still exists")
    for _ in range(10):
        delete("x")
    assert told and {trip.verdict for trip in told} == {"warn"}
    session.kill("a person's word counts all the same")
    with pytest.raises(deadstop.DeadstopKilled):
        delete("x")


def test_fifty_in_threads_and_three_run():
    session = deadstop.session(agent="t", max_steps=3)
    ran = []

    @session.tool
    def look(n):
        ran.append(n)

    def attempt(n):
        try:
            look(n)
        except deadstop.DeadstopKilled:
            pass

    threads = [threading.Thread(target=attempt, args=[n]) for n in range(50)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(ran) == 3


def test_fifty_in_tasks_and_three_run():
    session = deadstop.session(agent="t", max_steps=3)
    ran = []

    @session.tool
    async def look(n):
        ran.append(n)
        await asyncio.sleep(0.001)

    async def main():
        return await asyncio.gather(*(look(n) for n in range(50)), return_exceptions=True)

    ends = asyncio.run(main())
    assert len(ran) == 3
    assert sum(isinstance(end, deadstop.DeadstopKilled) for end in ends) == 47


def test_a_hundred_model_calls_and_not_a_cent_over(async_client):
    """$0.00027 a call (gpt-4o: 11 in, 23 out) of a cent; up to $0.00105 is set aside for each."""
    session = deadstop.guard(
        async_client,
        agent="t",
        max_cost_usd=0.01,
        policy={"budget": {"reservation": "ceiling"}, "strikes": {"enabled": False},
                "text_loop": {"enabled": False}},
    )

    async def one():
        return await async_client.chat.completions.create(
            model="gpt-4o-plain", max_tokens=100, messages=[{"role": "user", "content": "go"}]
        )

    async def main():
        return await asyncio.gather(*(one() for _ in range(100)), return_exceptions=True)

    ends = asyncio.run(main())
    refused = [end for end in ends if isinstance(end, BaseException)]
    kinds = (deadstop.DeadstopKilled, deadstop.DeadstopBlocked)
    assert refused and all(isinstance(end, kinds) for end in refused), refused[:3]
    state = session.get_state()
    assert 0 < state.cost_usd <= 0.01 and state.reserved_usd == 0
    session.restore()


def test_pickling():
    session = deadstop.session(agent="t")
    with pytest.raises(TypeError, match="give it a server"):
        pickle.dumps(session)
    session.kill("x")
    with pytest.raises(deadstop.DeadstopKilled) as caught:
        session.tool(lambda: 1)()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.context == caught.value.context and str(again) == str(caught.value)


FORK = """
import os, deadstop
session = deadstop.session(agent="t", max_steps=2)
look = session.tool(name="look")(lambda n: n)
look(1)
child = os.fork()
if child == 0:
    look(2)
    try:
        look(3)
    except deadstop.DeadstopKilled:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
look(2)
assert not session.killed
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_fork():
    """A child goes on from what was used, and what it does is its own."""
    done = run(FORK)
    assert done.returncode == 0, done.stderr


def test_mistakes_are_told():
    for options, text in (
        ({"policy": "[budget]\nmax_cost_used = 1"}, "did you mean"),
        ({"policy": "nowhere.toml"}, "cannot read the policy"),
        ({"mode": "loud"}, "log-only"),
        ({"max_steps": 0}, "1 or more"),
        ({"agent": "a\nb"}, "cannot be a name"),
    ):
        with pytest.raises(deadstop.DeadstopError, match=text):
            deadstop.session(**{"agent": "a", **options})
    with pytest.raises(deadstop.DeadstopError, match="cannot be guarded"):
        deadstop.guard(object(), agent="a")

"""A session with a server: it has the last word."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
import threading
import time

import deadstop
import pytest

from conftest import eventually
from test_scopes import run

LOOSE = "[text_loop]\nenabled = false\n[strikes]\nenabled = false\n"


def look(session):
    return session.tool(name="look")(lambda n: f"seen {n}")


def path(session):
    return f"/api/sessions/{session.agent}/{session.name}"


def test_a_kill_at_the_server_arrives(serve, openai_client):
    server = serve(LOOSE)
    session = deadstop.guard(openai_client, agent="mail", server=server.url)
    health = session.get_health()
    assert (health.authority_state, health.durability) == ("active", "server"), health
    told = []

    def kill():
        time.sleep(0.3)
        told.append(time.monotonic())
        server.ask("POST", path(session) + "/kill", {"reason": "from afar"})

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(deadstop.DeadstopKilled, match="from afar"):
        for _ in session.client.chat.completions.create(
            model="gpt-4o-endless", messages=[{"role": "user", "content": "go"}], stream=True
        ):
            pass
    took = time.monotonic() - told[0]
    thread.join()
    print(f"a kill at the server ended a stream here after {took * 1000:.0f} ms")
    assert took < 30, "the provider would have gone on for a minute"
    assert session.get_health().durability == "server"
    session.restore()


def test_a_kill_here_lasts_there(serve):
    server = serve(LOOSE)
    session = deadstop.session(agent="mail", session="s1", server=server.url)
    look(session)(1)
    session.kill("STOP")
    health = session.get_health()
    assert (health.killed, health.authority_state, health.status) == (True, "killed", "inactive")
    assert health.durability == "server"
    assert server.ask("GET", path(session))["state"] == "killed"
    with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
        deadstop.session(agent="mail", session="s1", server=server.url)
    server.stop()
    again = serve(LOOSE)
    with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
        deadstop.session(agent="mail", session="s1", server=again.url)


def test_the_policy_is_the_servers_and_followed(serve):
    server = serve(LOOSE + "[access]\ndeny = ['rm']\n")
    session = deadstop.session(agent="a", policy="observe", server=server.url)
    rm = session.tool(name="rm")(lambda: "gone")
    with pytest.raises(deadstop.DeadstopBlocked):
        rm()
    assert session.get_state().forbidden_tools == ["rm"]
    policy = server.ask("GET", "/api/policies/default")["document"]
    policy["access"]["deny"] = ["look"]
    put = server.ask("PUT", "/api/policies/default", policy, {"if-match": "*"})
    assert "version" in put, put
    eventually(lambda: session.get_state().forbidden_tools == ["look"])
    assert rm() == "gone"


def test_a_hold_and_its_end(serve):
    server = serve(LOOSE)
    session = deadstop.session(agent="a", server=server.url)
    server.ask("POST", path(session) + "/pause", {"reason": "let me look"})
    eventually(lambda: session.get_health().authority_state == "paused")
    with pytest.raises(deadstop.DeadstopBlocked, match="let me look"):
        look(session)(1)
    server.ask("POST", path(session) + "/resume", {"reason": "fine"})
    eventually(lambda: session.get_health().authority_state == "active")
    assert look(session)(1) == "seen 1"


def test_a_person_is_asked(serve):
    server = serve(LOOSE + "[access]\nask = ['pay_*']\n")
    session = deadstop.session(agent="a", server=server.url)
    pay = session.tool(name="pay_invoice")(lambda number: f"paid {number}")

    def answer(word):
        waiting = []
        eventually(lambda: waiting.extend(server.ask("GET", "/api/approvals")["items"]) or waiting)
        server.ask("POST", f"/api/approvals/{waiting[0]['id']}/{word}", {"reason": "so be it"})

    for word in ("approve", "deny"):
        person = threading.Thread(target=answer, args=[word])
        person.start()
        if word == "approve":
            assert pay(7) == "paid 7"
        else:
            with pytest.raises(deadstop.DeadstopBlocked):
                pay(8)
        person.join()
    # Without a server no person can be asked.
    alone = deadstop.session(agent="a", policy={"access": {"ask": ["pay_*"]}}, server="")
    with pytest.raises(deadstop.DeadstopBlocked) as caught:
        alone.tool(name="pay_invoice")(print)()
    assert caught.value.trip.verdict == "ask"


def test_one_budget_over_processes(serve):
    """Two sessions' objects of one session, as two processes have them."""
    server = serve(LOOSE + "[steps]\nmax_steps = 6\n")
    here = deadstop.session(agent="a", session="s", server=server.url)
    with here.scope("crew"):
        variables = here.environment()
    program = """
import deadstop
session = deadstop.session()
assert (session.agent, session.name, session._root.path) == ("a", "s", ["crew"])
look = session.tool(name="look")(lambda n: n)
for n in range(4):
    look(n)
"""
    done = run(program, **variables)
    assert done.returncode == 0, done.stderr
    there = pickle.loads(pickle.dumps(here))
    ran = 0
    with pytest.raises(deadstop.DeadstopKilled):
        for n in range(9):
            look(here if n % 2 else there)(n)
            ran += 1
    assert ran == 2
    assert server.ask("GET", path(here))["live"]["steps"] == 6


def test_fifty_at_once_and_a_budget(serve, async_client):
    server = serve(LOOSE + "[steps]\nmax_steps = 3\n")
    session = deadstop.session(agent="a", server=server.url)
    ran = []

    @session.tool
    async def tool(n):
        ran.append(n)

    async def main():
        return await asyncio.gather(*(tool(n) for n in range(50)), return_exceptions=True)

    asyncio.run(main())
    assert len(ran) == 3


def test_the_server_is_away(serve):
    server = serve(LOOSE)
    session = deadstop.session(agent="a", server=server.url)
    assert look(session)(1) == "seen 1"
    session.flush()
    server.stop()
    # The first call waits for a refused connection, later calls do not wait.
    assert [look(session)(n) for n in range(5)] == [f"seen {n}" for n in range(5)]
    eventually(lambda: session.get_health().authority_state == "unreachable")
    health = session.get_health()
    assert (health.status, health.server["connected"], health.server["fail_mode"]) == (
        "degraded", False, "open")
    port = int(server.url.rsplit(":", 1)[1])
    serve(LOOSE, port)
    eventually(lambda: session.get_health().status == "active")
    session.flush()
    eventually(lambda: server.ask("GET", path(session))["live"]["steps"] >= 5)


def test_closed_means_closed(serve):
    server = serve("fail_mode = 'closed'\n" + LOOSE)
    session = deadstop.session(agent="a", server=server.url)
    look(session)(1)
    server.stop()
    eventually(lambda: session.get_health().authority_state == "unreachable")
    with pytest.raises(deadstop.DeadstopBlocked, match="fail_mode is closed"):
        look(session)(2)
    session.kill("it is over all the same")
    assert session.get_health().durability == "pending"


def test_what_cannot_be_reached_is_looked_for():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    session = deadstop.session(agent="a", server=url)
    assert session.get_health().authority_state == "unreachable"
    assert look(session)(1) == "seen 1"


LEAVES = """
import deadstop, sys
session = deadstop.session(agent="a", session="s", server=sys.argv[1])
look = session.tool(name="look")(lambda n: n)
for n in range(20):
    look(n)
print("done")
"""


def test_the_interpreter_ends_with_events_unsent(serve):
    server = serve(LOOSE)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", LEAVES, server.url], capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", ""), done
        if server.process.poll() is None:
            live = server.ask("GET", "/api/sessions/a/s")["live"]
            assert (live["steps"], live["in_flight"]) == (20, 0)
            server.stop()  # the second time it is away from the beginning

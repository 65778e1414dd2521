"""Chaos: a provider that is down a fifth of the time, in every way, and 50 agents on real SDKs that retry.

No session may end, every agent must finish, and the breaker must open and close by itself. It lasts seconds;
DEADSTOP_SOAK=1 makes it ten minutes.
"""

import collections
import itertools
import json
import os
import pathlib
import random
import re
import threading
import time
import urllib.request

import httpx2 as httpx

import flaky
import sdks
from gateway import Gateway

SOAK = bool(os.environ.get("DEADSTOP_SOAK"))
SECONDS, PERIOD, PAUSE = (600, 20, 1.0) if SOAK else (10, 5, 0.2)
AGENTS, KEYS = 50, 5
WAYS = [503, 500, 529, 429, 502, "reset", "torn", "timeout"]


class Agent(threading.Thread):
    """Talks until the time is over, repeats what failed, and says one thing more at the end. It has no
    session's name: what it repeats is all that is known of it."""

    def __init__(self, number, url, until):
        super().__init__(daemon=True)
        self.number, self.until = number, until
        self.sdk = sdks.ALL["anthropic" if number % 2 else "openai-chat"]
        self.client = self.sdk.connect(self.sdk.path(url), f"sk-{number % KEYS}", None)
        self.dice = random.Random(number)
        self.turns, self.answers, self.errors, self.ended, self.finished = [], 0, collections.Counter(), None, False
        self.slowest = 0.0

    def words(self):
        return " ".join("".join(self.dice.choices("abcdefghijklmnop", k=7)) for _ in range(8))

    def run(self):
        while not self.finished and not self.ended:
            last = time.monotonic() > self.until
            say = "hi" if not self.turns and self.number % 3 == 0 else f"agent {self.number}: {self.words()}"
            self.turns.append({"role": "user", "content": say})
            self.answered()
            self.finished = last and not self.ended
            time.sleep(PAUSE * self.dice.uniform(0.5, 1.5))

    def answered(self):
        """One turn, as often as it takes."""
        began = time.monotonic()
        while not self.ended:
            try:
                text = self.ask(self.dice.random() < 0.5)
            except (self.sdk.error, httpx.HTTPError) as error:
                status = getattr(error, "status_code", None)
                self.errors[status or type(error).__name__] += 1
                if status in (402, 403):
                    self.ended = str(error)
                time.sleep(0.1)
                continue
            self.turns.append({"role": "assistant", "content": text})
            self.answers += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            return

    def ask(self, stream):
        answer = self.sdk.ask(self.client, "standin-varied", self.turns, stream)
        if not stream:
            return answer.choices[0].message.content if hasattr(answer, "choices") else answer.content[0].text
        pieces = []
        done = False
        for event in answer:
            if hasattr(event, "choices"):
                pieces += [choice.delta.content or "" for choice in event.choices]
                done = done or any(choice.finish_reason for choice in event.choices)
            else:
                pieces.append(getattr(getattr(event, "delta", None), "text", None) or "")
                done = done or event.type == "message_stop"
        if not done:
            raise httpx.RemoteProtocolError("the stream broke off")
        return "".join(pieces)


def get(url):
    return urllib.request.urlopen(url, timeout=10).read().decode()


def test_a_provider_that_is_down_a_fifth_of_the_time(tmp_path: pathlib.Path, capsys):
    upstream, ways = flaky.start(), itertools.cycle(WAYS)
    gateway = Gateway(os.environ["DEADSTOP_BIN"], tmp_path, upstream.url, "chaos", more="upstream_timeout_seconds = 2")
    try:
        # Down for the last fifth of each period; up in the end, so that the agents can finish.
        upstream.schedule = lambda at: next(ways) if at < SECONDS and at % PERIOD > PERIOD * 0.8 else None
        upstream.began = time.monotonic()
        agents = [Agent(number, gateway.url, upstream.began + SECONDS) for number in range(AGENTS)]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join(SECONDS + 60)
        took = time.monotonic() - upstream.began
        status = json.loads(get(f"{gateway.url}/api/status?limit=500"))
        sessions = [scope for scope in status["scopes"] if scope["kind"] == "session"]
        metrics = get(f"{gateway.url}/metrics")
    finally:
        gateway.stop()
    refused = sum(map(int, re.findall(r'deadstop_verdicts_total\{guard="breaker",verdict="block"\} (\d+)', metrics)))
    errors = sum((agent.errors for agent in agents), collections.Counter())
    with capsys.disabled():
        print(f"\nchaos: {AGENTS} agents, {took:.0f} s, {sum(agent.answers for agent in agents)} answers; the provider failed "
              f"{sum(upstream.failed.values())} times ({', '.join(f'{way} {n}' for way, n in upstream.failed.items())}); "
              f"the breaker refused {refused} calls; errors that reached agents after retries: {sum(errors.values())} "
              f"({dict(errors)}); {len(sessions)} sessions, "
              f"slowest turn {max(agent.slowest for agent in agents):.1f} s", flush=True)
    assert [agent.ended for agent in agents if agent.ended] == []
    assert all(agent.finished for agent in agents), [agent.number for agent in agents if not agent.finished]
    assert set(upstream.failed) == set(WAYS), "it must fail in every way"
    assert refused > 0, "the breaker never opened"
    # A client that gives up before its answer is known may come back before the server has heard of it: then its
    # conversation begins anew. That is rare, and two clients never share a session.
    assert AGENTS <= len(sessions) <= AGENTS + 3, f"{len(sessions)} sessions of {AGENTS} conversations"
    assert {session["state"] for session in sessions} == {"running"}

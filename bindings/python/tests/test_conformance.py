"""The scenarios that every door must judge alike, run by the package; and through a server."""

from __future__ import annotations

import json
import os
import subprocess

import deadstop
import pytest
from deadstop import _native

from conftest import BINARY, OPERATOR, ROOT

SCENARIOS = json.loads((ROOT / "tests/conformance/scenarios.json").read_text())


def ask(scope, step):
    """Asks; gives the call and what was said."""
    try:
        if "tool" in step:
            running = scope.tool(step["tool"], step["arguments"], step.get("server"))
        else:
            running = scope.model(
                step["model"],
                input_tokens=step.get("input_tokens", 0),
                max_output_tokens=step.get("max_output_tokens"),
                prompt=step.get("prompt"),
                provider=step.get("provider"),
                from_person=step.get("from_person", False),
            )
    except (deadstop.DeadstopKilled, deadstop.DeadstopBlocked) as refused:
        return None, f"{refused.trip.verdict} {refused.guard}/{refused.trip.code}"
    return running, "allow"


def end(session, running, step):
    """Settles a call; the verdict stands in its capture."""
    try:
        if "usage" in step:
            usage = step["usage"]
            running.end(step.get("status", "ok"), usage["input"], usage["output"], step["answer"])
        else:
            running.end(step.get("status", "ok"), step["result"])
    except deadstop.DeadstopKilled:
        pass
    return [c for c in session.captures() if c["what"] == "settled"][-1]["verdict"]


def play(session, scenario):
    opened = {}
    for number, step in enumerate(scenario["steps"]):
        session.set_clock(step.get("at", 0))  # where there is a clock to set
        scope = session.root()
        for name in step.get("scope", []):
            scope = scope.scope(name)
        at = f"{scenario['name']}, step {number}"
        if "kill" in step:
            session.kill(step["kill"])
        elif "limits" in step:
            scope.set_limits(step["limits"])
        elif "end" in step:
            assert end(session, opened.pop(step["end"]), step) == step["then"], at
        else:
            running, said = ask(scope, step)
            if running is not None:
                # What was let pass with a warning stands in its capture.
                admitted = [c for c in session.captures() if c["what"] == "admitted"][-1]
                said = admitted["verdict"]
            assert said == step["expect"] or (running and said == step["expect"].split()[0]), at
            if running is not None and "open" in step:
                opened[step["open"]] = running
            elif running is not None:
                assert end(session, running, step) == step["then"], at


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_in_the_process(scenario):
    play(_native.Session("agent", "s1", json.dumps(scenario["policy"]), clock=0), scenario)


GOVERNED = [scenario for scenario in SCENARIOS if not scenario.get("needs")]


def test_with_a_server(serve, tmp_path):
    """With a server the same is said: of the two that judge, neither disagrees with the other."""
    server = serve()
    for number, scenario in enumerate(GOVERNED):
        agent, policy = f"agent{number}", tmp_path / "scenario.json"
        policy.write_text(json.dumps(scenario["policy"]))
        command = [BINARY, "policy", "set", policy, "--reason", "a test", "--server", server.url]
        subprocess.run(command, check=True, capture_output=True,
                       env=os.environ | {"DEADSTOP_OPERATOR_TOKEN": OPERATOR})
        play(_native.Session(agent, "s", None, server=server.url), scenario)

"""Steers, with every SDK as it comes: an agent that follows the advice finishes, one that ignores it is
ended, and the prompt's prefix stays byte for byte the same."""

import json
import os
import pathlib
import re
import urllib.request

import pytest

import sdks
from gateway import Gateway
from test_sdks import Agent

STANDIN, BINARY = os.environ["STANDIN"], os.environ["DEADSTOP_BIN"]
TURNS = 10


@pytest.fixture(params=sdks.ALL.values(), ids=sdks.ALL.keys())
def sdk(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


def gateway(tmp_path_factory, name, policy):
    folder: pathlib.Path = tmp_path_factory.mktemp(name)
    file = folder / "policy.toml"
    file.write_text(policy)
    return Gateway(BINARY, folder, STANDIN, name, policy=file)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    started = gateway(tmp_path_factory, "balanced", 'preset = "balanced"\n')
    yield started
    assert started.stop()


@pytest.fixture(scope="module")
def steering(tmp_path_factory):
    policy = 'preset = "balanced"\n[loop]\nsteer_at = 3\nblock_at = "off"\nend_at = "off"\n[text_loop]\nenabled = false\n'
    started = gateway(tmp_path_factory, "steering", policy)
    yield started
    assert started.stop()


def turn(agent, model, stream, turns):
    """One turn: what comes of it, and whether the model asked for the tool once more."""
    answer = json.dumps(agent.ask(model, stream, turns))
    call = re.search(r"call_\d+", answer)
    again = sdks.NAME in answer
    return (agent.sdk.result(turns, call and call[0]) if again else turns), again


def test_an_agent_that_follows_finishes(sdk, stream, balanced):
    agent = Agent(sdk, balanced.url)
    turns, steps, again = sdk.begin(), 0, True
    while again:
        steps += 1
        turns, again = turn(agent, "standin-listens", stream, turns)
    assert steps == 4, "three calls; the result of the third carries the advice"
    agent.ask("standin-varied", stream)


def test_an_agent_that_ignores_it_is_ended(sdk, stream, balanced):
    agent = Agent(sdk, balanced.url)
    turns, refused = sdk.begin(), []
    for _ in range(30):
        try:
            turns, _ = turn(agent, "standin-deaf", stream, turns)
        except sdk.error as error:
            refused.append(str(error))
            if "stopped" in refused[-1]:
                break
    assert "get_weather" in refused[0] and "Deadstop blocked" in refused[0], refused[0]
    assert "Deadstop stopped" in refused[-1], refused[-1]
    with pytest.raises(sdk.error):
        agent.ask("standin-varied", stream)


def test_the_prefix_stays_byte_for_byte(sdk, steering):
    agent = Agent(sdk, steering.url)
    turns = sdk.begin()
    for _ in range(TURNS + 3):
        turns, again = turn(agent, "standin-deaf", False, turns)
        assert again
    sent = json.load(urllib.request.urlopen(f"{STANDIN}/_sent/{agent.key}", timeout=5))
    told = [body.count("[Deadstop] ") for body in sent]
    assert told[:4] == [0, 0, 0, 1] and len(told) == TURNS + 3, told
    for before, after in zip(sent, sent[1:]):
        shared = len(os.path.commonprefix([before, after]))
        # Of the request before all messages are there again, with their notes.
        rest = before[shared:]
        assert sdks.RESULT not in rest and "[Deadstop]" not in rest and sdks.NAME not in rest.split("tools")[0], rest

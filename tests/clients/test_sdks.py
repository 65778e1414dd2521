"""What every SDK must see through the gateway: the same objects when a call is allowed, one error and
no second try when it is not."""

import itertools
import json
import os
import re
import subprocess
import threading
import time
import urllib.request

import pytest

import sdks

STANDIN, GATEWAY, MESSAGES, DOOR = (os.environ[name] for name in ("STANDIN", "GATEWAY", "MESSAGES", "DOOR"))
numbers = itertools.count()


@pytest.fixture(params=sdks.ALL.values(), ids=sdks.ALL.keys())
def sdk(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


class Agent:
    """An agent with a key and a session of its own, behind the gateway at `url`."""

    def __init__(self, sdk, url):
        number = next(numbers)
        self.sdk, self.url = sdk, url
        self.key, self.session = f"sk-{os.getpid()}-{number}", f"python-{os.getpid()}-{number}"
        self.client = sdk.connect(url if url == STANDIN else sdk.path(url), self.key, self.session)

    def events(self, model, stream, turns=None):
        answer = self.sdk.ask(self.client, model, turns or self.sdk.begin(), stream)
        for event in answer if stream else [answer]:
            yield event

    def ask(self, model, stream, turns=None):
        return [plain(event) for event in self.events(model, stream, turns)]

    def kill(self):
        killed(self.session, MESSAGES if self.url == MESSAGES else GATEWAY)

    def counted(self):
        """Requests at the gateway and at the upstream."""
        at_door = int(urllib.request.urlopen(f"{DOOR}/_seen/{self.key}", timeout=5).read())
        return at_door, self.upstream()["requests"]

    def upstream(self):
        return json.load(urllib.request.urlopen(f"{STANDIN}/_seen/{self.key}", timeout=5))

    def wait_for_open(self, number):
        until = time.monotonic() + 5
        while self.upstream()["open"] != number:
            assert time.monotonic() < until, f"not {number} answers open at the upstream"
            time.sleep(0.01)


def killed(session, server):
    command = [os.environ["DEADSTOP_BIN"], "kill", session, "--server", server, "--reason", "enough of this"]
    subprocess.run(command, check=True, timeout=10, stdout=subprocess.DEVNULL)


def plain(event):
    """An SDK's object as JSON, without the headers of the response that Google's SDK adds."""
    value = json.loads(event.model_dump_json())
    if isinstance(value.get("sdk_http_response"), dict):
        value["sdk_http_response"] = None
    return value


def check_refusal(sdk, error, status, words):
    assert isinstance(error, sdk.error), repr(error)
    assert sdk.status(error) == status, repr(error)
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("model", ["standin-plain", "standin-tool", "standin-gzip-plain", "standin-gzip-tool"])
def test_allowed_calls_give_the_same_objects(sdk, stream, model):
    direct, through = Agent(sdk, STANDIN).ask(model, stream), Agent(sdk, GATEWAY).ask(model, stream)
    assert direct == through
    assert len(direct) > 4 if stream else len(direct) == 1


def test_the_providers_own_errors_stay_what_they_are(sdk, stream):
    errors = []
    for url in (STANDIN, GATEWAY):
        with pytest.raises(sdk.error) as caught:
            Agent(sdk, url).ask("standin-bad", stream)
        errors.append((type(caught.value), sdk.status(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_a_killed_session_raises_once(sdk, stream):
    agent = Agent(sdk, DOOR)
    agent.ask("standin-plain", stream)
    agent.kill()
    with pytest.raises(sdk.error) as caught:
        agent.ask("standin-plain", stream)
    check_refusal(sdk, caught.value, 403, ["Deadstop stopped", "enough of this", "Do not retry"])
    assert sdk.reason(caught.value) == "session_killed"
    assert agent.counted() == (2, 1)


def test_a_budget_stop_raises_once(sdk, stream):
    agent = Agent(sdk, DOOR)
    # The answer that breaks the budget may itself be cut; it must not be asked for again.
    try:
        agent.ask("standin-costly", stream)
    except sdk.error as error:
        assert "over its budget of $1.00. Do not retry." in str(error)
    assert agent.counted() == (1, 1)
    with pytest.raises(sdk.error) as caught:
        agent.ask("standin-plain", stream)
    check_refusal(sdk, caught.value, 402, ["Deadstop stopped", "$1.00", "Do not retry"])
    assert agent.counted() == (2, 1)


@pytest.mark.parametrize("model", ["standin-endless", "standin-gzip-endless"])
def test_a_kill_cuts_a_stream_with_one_error(sdk, model):
    agent = Agent(sdk, DOOR)
    began = None
    with pytest.raises(sdk.error) as caught:
        for number, _ in enumerate(agent.events(model, True)):
            if number == 8:
                agent.kill()
                began = time.monotonic()
    assert began and time.monotonic() - began < 2
    assert isinstance(caught.value, sdk.error)
    assert "enough of this" in str(caught.value)
    agent.wait_for_open(0)
    assert agent.counted() == (1, 1)


def test_a_kill_ends_an_answer_that_does_not_come(sdk):
    agent = Agent(sdk, DOOR)
    threading.Thread(target=lambda: (agent.wait_for_open(1), agent.kill()), daemon=True).start()
    began = time.monotonic()
    with pytest.raises(sdk.error) as caught:
        agent.ask("standin-endless", False)
    assert time.monotonic() - began < 4
    check_refusal(sdk, caught.value, 403, ["enough of this"])
    agent.wait_for_open(0)
    assert agent.counted() == (1, 1)


def test_a_tool_loop_is_stopped(sdk, stream):
    agent, turns, steps = Agent(sdk, DOOR), sdk.begin(), 0
    with pytest.raises(sdk.error) as caught:
        for steps in range(1, 20):
            answer = agent.ask("standin-loop", stream, turns)
            call = re.search(r"call_\d+", json.dumps(answer))
            turns = sdk.result(turns, call and call[0])
    assert "Deadstop stopped" in str(caught.value) and "get_weather" in str(caught.value)
    assert 4 <= steps <= 6
    assert agent.counted() == (steps, steps)
    with pytest.raises(sdk.error) as caught:
        agent.ask("standin-plain", stream)
    check_refusal(sdk, caught.value, 403, ["Deadstop stopped", "Do not retry"])
    assert agent.counted() == (steps + 1, steps)


def test_a_client_that_leaves_ends_the_upstream(sdk):
    agent = Agent(sdk, GATEWAY)
    events = agent.events("standin-endless", True)
    next(events)
    agent.wait_for_open(1)
    events.close()
    del events
    if hasattr(agent.client, "close"):
        agent.client.close()
    agent.wait_for_open(0)


def test_the_last_word_as_a_message(sdk, stream):
    agent = Agent(sdk, MESSAGES)
    agent.ask("standin-plain", stream)
    agent.kill()
    answer = json.dumps(agent.ask("standin-plain", stream))
    assert "enough of this" in answer and "Do not retry" in answer
    assert agent.upstream()["requests"] == 1


def test_openai_embeddings_and_unknown_paths_pass():
    def ask(url):
        client = Agent(sdks.ALL["openai-chat"], url).client
        vectors = client.embeddings.create(model="standin-embed", input=["one", "two"])
        return plain(vectors), [plain(model) for model in client.models.list()]

    assert ask(STANDIN) == ask(GATEWAY)


def test_anthropic_counts_tokens_and_gathers_streams():
    def ask(url):
        sdk = sdks.ALL["anthropic"]
        client = Agent(sdk, url).client
        counted = client.messages.count_tokens(model="standin-plain", messages=sdk.begin())
        with client.messages.stream(model="standin-tool", max_tokens=9, messages=sdk.begin()) as gathering:
            return plain(counted), plain(gathering.get_final_message())

    assert ask(STANDIN) == ask(GATEWAY)

"""Identity, blame and cost with real SDKs as they come, retries and all: nothing here ends a healthy session.
Each test is something that once did."""

import concurrent.futures
import itertools
import json
import os
import pathlib
import urllib.request

import anthropic
import openai
import pytest

import flaky
import sdks
from gateway import Gateway

numbers = itertools.count()
SDKS = {name: sdks.ALL[name] for name in ("openai-chat", "anthropic")}
# What reaches the SDK is what the provider said; 502 stands for a provider that gave no answer at all.
WAYS = [503, 500, 529, 502, 429, "reset", "torn", "timeout"]


@pytest.fixture(scope="module")
def upstream():
    return flaky.start()


@pytest.fixture(scope="module")
def serve(upstream, tmp_path_factory):
    """Starts gateways under a policy; the default policy is started once."""
    folder, started = tmp_path_factory.mktemp("blame"), {}

    def start(policy=""):
        if policy not in started:
            name = f"g{len(started)}"
            file = folder / f"{name}-policy.toml"
            file.write_text(policy)
            started[policy] = Gateway(os.environ["DEADSTOP_BIN"], folder, upstream.url, name,
                                      policy=file if policy else None, more="upstream_timeout_seconds = 2")
        return started[policy].url

    yield start
    for gateway in started.values():
        assert gateway.stop()


def key():
    return f"sk-{os.getpid()}-{next(numbers)}"


def sessions(url, agent="default"):
    status = json.load(urllib.request.urlopen(f"{url}/api/status?limit=500", timeout=10))
    return [scope for scope in status["scopes"] if scope["kind"] == "session" and scope["agent"] == agent]


def state(url, name):
    return [session["state"] for session in sessions(url) if session["name"] == name]


def at_once(work, count):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [job.result() for job in [pool.submit(work, number) for number in range(count)]]


@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS.keys())
def test_three_attempts_that_fail_end_no_session(sdk, serve, upstream):
    url = serve()

    def attempt(number):
        way, stream = WAYS[number // 2], bool(number % 2)
        mine, session = key(), f"fails-{next(numbers)}"
        client = sdk.connect(sdk.path(url), mine, session)
        upstream.plan(mine, [way] * 3)
        try:
            list(sdk.ask(client, "standin-plain", sdk.begin(), stream))
        except (openai.OpenAIError, anthropic.AnthropicError) as error:
            failed = error
        except Exception as error:  # A stream that breaks off is the HTTP library's error.
            failed = error
        else:
            raise AssertionError(f"{way} was answered")
        assert getattr(failed, "status_code", None) not in (402, 403), f"{way}: {failed!r}"
        upstream.plan(mine, [])
        sdk.ask(client, "standin-plain", sdk.begin(), False)
        assert state(url, session) == ["running"], way

    at_once(attempt, len(WAYS) * 2)


def test_a_provider_that_is_not_there_ends_no_session(tmp_path: pathlib.Path):
    gateway = Gateway(os.environ["DEADSTOP_BIN"], tmp_path, "http://127.0.0.1:9", "refused")
    try:
        client = openai.OpenAI(base_url=f"{gateway.url}/openai/v1", api_key=key(),
                               default_headers={"x-deadstop-session": "s"})
        for _ in range(2):
            with pytest.raises(openai.APIStatusError) as caught:
                client.chat.completions.create(model="standin-plain", messages=[{"role": "user", "content": "hi"}])
            assert caught.value.status_code in (429, 502), repr(caught.value)
        assert state(gateway.url, "s") == ["running"]
        incidents = json.load(urllib.request.urlopen(f"{gateway.url}/api/incidents", timeout=10))["items"]
        # The breaker has opened, and says why.
        assert [incident["guard"] for incident in incidents] == ["breaker"]
        assert "connection failed" in json.dumps(incidents)
    finally:
        gateway.stop()


def test_one_clients_mistakes_are_its_own(serve, upstream):
    url, wrong = serve(), key()
    upstream.plan(wrong, [401] * 5)
    client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=wrong)
    for _ in range(5):
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="standin-plain", messages=[{"role": "user", "content": "hi"}])
    for _ in range(5):
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve("x")
    other = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key(), max_retries=0)
    for _ in range(10):
        other.chat.completions.create(model="standin-varied", messages=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS.keys())
def test_strangers_never_share_a_session(sdk, serve):
    url = serve()
    client = sdk.connect(f"{url}/agent/hi-{sdk.error.__module__}{'/openai' if sdk is SDKS['openai-chat'] else '/anthropic'}", key(), None)
    for _ in range(12):
        turns = [{"role": "user", "content": "hi"}]
        answer = sdk.ask(client, "standin-delete", turns, False)
        if sdk is SDKS["openai-chat"]:
            said = answer.choices[0].message
            turns += [said.model_dump(exclude_none=True),
                      {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "gone"}]
        else:
            asked = next(block for block in answer.content if block.type == "tool_use")
            turns += [{"role": "assistant", "content": answer.model_dump(exclude_none=True)["content"]},
                      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": asked.id, "content": "gone"}]}]
        sdk.ask(client, "standin-varied", turns, False)
    found = sessions(url, f"hi-{sdk.error.__module__}")
    assert len(found) == 12 and {session["model_calls"] for session in found} == {2}
    assert {session["state"] for session in found} == {"running"}


def test_a_trace_is_no_session(serve):
    url = serve()
    client = openai.OpenAI(base_url=f"{url}/agent/traced/openai/v1", api_key=key())
    turns = [{"role": "user", "content": "fix the build"}]
    for number in range(6):
        trace = {"traceparent": f"00-{number + 1:032x}-00f067aa0ba902b7-01"}
        answer = client.chat.completions.create(model="standin-varied", messages=turns, extra_headers=trace)
        turns += [{"role": "assistant", "content": answer.choices[0].message.content},
                  {"role": "user", "content": f"go on {number}"}]
    assert [session["model_calls"] for session in sessions(url, "traced")] == [6]


def test_six_calls_on_five_dollars_all_succeed(serve):
    url = serve('[budget]\nmax_cost_usd = 5.0\nreservation = "ceiling"\n')
    client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key(), max_retries=0,
                           default_headers={"x-deadstop-session": "six"})
    ask = {"model": "gpt-4o-varied", "messages": [{"role": "user", "content": "sum this up"}]}
    answers = at_once(lambda _: client.chat.completions.create(**ask), 6)
    assert all(answer.choices[0].message.content for answer in answers)
    assert state(url, "six") == ["running"]


def test_branches_that_do_not_fit_at_once_all_succeed(serve):
    # Each call holds $0.005 (500 tokens of output at $10 a million) and a little for its prompt: nine fit at once.
    url = serve('[budget]\nmax_cost_usd = 0.05\nreservation = "ceiling"\n')
    client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key(), max_retries=0,
                           default_headers={"x-deadstop-session": "fan"})

    def branch(number):
        return client.chat.completions.create(
            model="gpt-4o-varied", max_tokens=500, extra_headers={"x-deadstop-scope": f"branch-{number}"},
            messages=[{"role": "user", "content": f"part {number}"}])

    assert len(at_once(branch, 14)) == 14
    assert state(url, "fan") == ["running"]


def test_a_billed_answer_is_delivered_and_the_next_call_refused(serve):
    url = serve("[budget]\nmax_cost_usd = 1.0\n")
    for sdk, path in ((SDKS["openai-chat"], "gpt-4o-costly"), (SDKS["anthropic"], "claude-sonnet-4-5-costly")):
        session = f"billed-{next(numbers)}"
        client = sdk.connect(sdk.path(url), key(), session)
        assert "lazy" in sdk.ask(client, path, sdk.begin(), False).model_dump_json()
        with pytest.raises(sdk.error) as caught:
            sdk.ask(client, path, sdk.begin(), False)
        assert sdk.status(caught.value) == 402


def test_questions_about_models_are_no_model_calls(serve):
    url = serve("[steps]\nmax_model_calls = 2\n")
    headers = {"x-deadstop-session": "asks"}
    chat = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key(), default_headers=headers)
    claude = anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key(), default_headers=headers)
    for _ in range(4):
        assert list(chat.models.list())
        claude.messages.count_tokens(model="standin-plain", messages=[{"role": "user", "content": "hi"}])
    for _ in range(2):
        chat.chat.completions.create(model="standin-varied", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.APIStatusError) as caught:
        chat.chat.completions.create(model="standin-varied", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.status_code == 402


def test_the_path_names_the_agent(serve):
    url = serve()
    client = openai.OpenAI(base_url=f"{url}/agent/bound/openai/v1", api_key=key(),
                           default_headers={"x-deadstop-agent": "other"})
    client.chat.completions.create(model="standin-plain", messages=[{"role": "user", "content": "hi"}])
    assert sessions(url, "other") == [] and len(sessions(url, "bound")) == 1


def test_an_estimate_ends_nothing(serve):
    url = serve("[tokens]\ninput_token_limit = 50000\n")
    client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key(),
                           default_headers={"x-deadstop-session": "long"})
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="standin-plain", messages=[{"role": "user", "content": "word " * 60_000}])
    assert caught.value.status_code == 402 and "estimate" in str(caught.value)
    assert state(url, "long") == ["running"]
    client.chat.completions.create(model="standin-plain", messages=[{"role": "user", "content": "hi"}])

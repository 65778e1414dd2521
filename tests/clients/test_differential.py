"""What the official SDKs take for tool calls in spoilt streams and documents, and what our reader sees in the same bytes.

A call that an SDK sees and we miss would run without a verdict, so there must be none. DEADSTOP_STREAMS says
how many of each kind are made up (800 by default, 100,000 in `make soak`), DEADSTOP_SEED which ones. DEADSTOP_CALLS is
the program that reads them: `crates/protocol/examples/calls.rs`.
"""

import collections
import json
import os
import pathlib
import random as randomness
import subprocess
import warnings

import anthropic
import google.genai
import google.genai.types
import httpx2
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

import streams

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STREAMS = int(os.environ.get("DEADSTOP_STREAMS", "800"))
SEED = int(os.environ.get("DEADSTOP_SEED", "1"))


class Ours:
    """Our reader, in a process of its own."""

    def __init__(self):
        found = [os.environ.get("DEADSTOP_CALLS"), ROOT / "target/release/examples/calls", ROOT / "target/debug/examples/calls"]
        path = next((path for path in found if path and pathlib.Path(path).is_file()), None)
        if path is None:
            pytest.fail("there is no reader; cargo build -p deadstop-protocol --example calls")
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def calls(self, dialect, form, body, cut):
        asked = {"dialect": dialect, "form": form, "cut": cut, "body": body.decode("latin-1")}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["calls"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Wire:
    """A provider inside this process, which answers with the bytes at hand."""

    def __init__(self):
        self.body = b""
        self.kind = "text/event-stream"
        transport = httpx2.MockTransport(self.answer)
        self.client = httpx2.Client(transport=transport)
        self.openai = openai.OpenAI(api_key="k", base_url="http://x", http_client=self.client, max_retries=0)
        self.anthropic = anthropic.Anthropic(api_key="k", base_url="http://x", http_client=self.client, max_retries=0)
        options = google.genai.types.HttpOptions(base_url="http://x", httpx_client=self.client)
        self.gemini = google.genai.Client(api_key="k", http_options=options)

    def answer(self, _):
        return httpx2.Response(200, headers={"content-type": self.kind}, content=self.body)


# What the SDK knows as a call: the last two run at the provider.
USES = ("tool_use", "server_tool_use", "mcp_tool_use")
MESSAGES = [{"role": "user", "content": "go"}]


def chat(wire):
    """The calls that the SDK says are done, and those of the answer in the end."""
    state = ChatCompletionStreamState()
    for chunk in wire.openai.chat.completions.create(model="m", messages=MESSAGES, stream=True):
        for event in state.handle_chunk(chunk):
            if event.type == "tool_calls.function.arguments.done":
                yield event.name, event.arguments
    try:
        choices = state.current_completion_snapshot.choices or []
    except (AssertionError, RuntimeError, AttributeError):
        choices = []
    for choice in choices:
        for call in choice.message.tool_calls or []:
            function, custom = getattr(call, "function", None), getattr(call, "custom", None)
            if function is not None:
                yield function.name, function.arguments
            elif custom is not None:
                yield custom.name, json.dumps({"input": custom.input})
        if (function := choice.message.function_call) is not None:
            yield function.name, function.arguments


def responses(wire):
    for event in wire.openai.responses.create(model="m", input="go", stream=True):
        kind = getattr(event, "type", None)
        if kind == "response.output_item.done":
            items = [getattr(event, "item", None)]
        elif kind in ("response.completed", "response.incomplete"):
            items = getattr(getattr(event, "response", None), "output", None) or []
        else:
            continue
        for item in items:
            yield from item_calls(item)


def item_calls(item):
    """The call that an item of a response is."""
    kind = getattr(item, "type", None)
    if kind == "function_call":
        yield item.name, item.arguments
    elif kind == "custom_tool_call" and isinstance(item.input, str):
        yield item.name, json.dumps({"input": item.input})


def claude(wire):
    """The blocks that the SDK says are done, and those of the message in the end."""
    with wire.anthropic.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
        for event in stream:
            block = getattr(event, "content_block", None) if event.type == "content_block_stop" else None
            if getattr(block, "type", None) in USES:
                yield block.name, json.dumps(block.input)
        for block in stream.get_final_message().content:
            if getattr(block, "type", None) in USES:
                yield block.name, json.dumps(block.input)


def gemini(wire):
    for chunk in wire.gemini.models.generate_content_stream(model="m", contents="go"):
        for candidate in chunk.candidates or []:
            for part in (candidate.content and candidate.content.parts) or []:
                if part.function_call is not None:
                    yield part.function_call.name, json.dumps(part.function_call.args)


def chat_document(wire):
    for choice in wire.openai.chat.completions.create(model="m", messages=MESSAGES).choices:
        for call in choice.message.tool_calls or []:
            yield call.function.name, call.function.arguments


def responses_document(wire):
    for item in wire.openai.responses.create(model="m", input="go").output:
        yield from item_calls(item)


def claude_document(wire):
    for block in wire.anthropic.messages.create(model="m", max_tokens=9, messages=MESSAGES).content:
        if getattr(block, "type", None) in USES:
            yield block.name, json.dumps(block.input)


def gemini_document(wire):
    for candidate in wire.gemini.models.generate_content(model="m", contents="go").candidates or []:
        for part in (candidate.content and candidate.content.parts) or []:
            if part.function_call is not None:
                yield part.function_call.name, json.dumps(part.function_call.args)


DOCUMENTS = {"chat": chat_document, "responses": responses_document, "anthropic": claude_document,
             "gemini": gemini_document}
SDKS = {"chat": chat, "responses": responses, "anthropic": claude, "gemini": gemini}


def seen_by(sdk, wire):
    """The calls that an SDK sees; one that gives up sees those before."""
    seen = []
    try:
        for name, arguments in sdk(wire):
            seen.append((name, arguments))
    except Exception:  # noqa: BLE001  # whatever an SDK raises for a spoilt stream, it has stopped
        pass
    return seen


NOTHING = object()


def parsed(arguments):
    """Arguments by their value; what is no JSON is nothing that a client could read."""
    try:
        return json.loads(arguments)
    except ValueError:
        return NOTHING


def covers(ours, theirs):
    """Whether what was judged holds all of what the client has. SDKs leave out what was cut off; we keep it."""
    # An input is an object. Where ours could not be read as one, it was judged as the text it is.
    if not isinstance(theirs, (dict, list)) and theirs in (None, NOTHING):
        return True
    if not isinstance(ours, (dict, list)) and theirs == {}:
        return True
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in ours and covers(ours[key], value) for key, value in theirs.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) >= len(theirs) and all(map(covers, ours, theirs))
    # A number without an end in sight is a float here and an integer there.
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (ours, theirs))
    return ours == theirs and (numbers or type(ours) is type(theirs))


def missed(theirs, ours):
    """Calls of theirs that are not among ours."""
    by_name = collections.defaultdict(list)
    for call in ours:
        by_name[call["name"]].append(call["arguments"])
    for name, arguments in theirs:
        # A call without a name, or with something that is no text for one, cannot be made.
        if not isinstance(name, str) or name == "":
            continue
        # Arguments that are no text are nothing that a client could read.
        if not isinstance(arguments, str):
            continue
        # So are those that are no JSON, or no object: there is nothing to call a tool with.
        if arguments.strip() and not isinstance(parsed(arguments), dict):
            continue
        found = by_name.get(name, [])
        if not any(covers(ours, parsed(arguments)) for ours in found):
            yield name, arguments


KINDS = {"plain": (streams.mutated, SDKS), "wide": (streams.wide, SDKS), "whole": (streams.documents, DOCUMENTS)}


@pytest.mark.parametrize("dialect", list(streams.DIALECTS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_call_is_missed(dialect, kind):
    warnings.simplefilter("ignore")
    wire, ours, seen, wrong = Wire(), Ours(), 0, []
    make, sdks = KINDS[kind]
    if kind == "whole":
        wire.kind = "application/json"
    try:
        for number in range(STREAMS // len(streams.DIALECTS)):
            random = randomness.Random(f"{dialect} {SEED} {number}")
            wire.body = make(random, dialect)
            theirs = seen_by(sdks[dialect], wire)
            seen += len(theirs)
            found = ours.calls(dialect, wire.kind, wire.body, random.choice([1, 7, 64, 1 << 20]))
            for call in missed(theirs, found):
                wrong.append((number, call, found, wire.body.decode("utf-8", "replace")))
    finally:
        ours.stop()
    for number, call, found, body in wrong[:5]:
        print(f"--- {dialect} {kind} {number}\nthey see {call}\nwe see   {found}\n{body[-3000:]}")
    print(f"{dialect} {kind}: {seen} calls seen by the SDK, {len(wrong)} of them missed")
    assert seen > STREAMS // len(streams.DIALECTS) // 2, "the SDK hardly sees a call: nothing is compared"
    assert not wrong

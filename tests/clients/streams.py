"""Streams of each dialect, and ways to spoil them: what servers get wrong, and what an attacker would try.

A stream is a list of events: (name, JSON value or text). `mutated` changes events, then writes them as bytes.
"""

import copy
import json

ARGUMENTS = ['{"path": "/tmp/a"}', '{}', '{"command": "rm -rf /srv", "n": 3}', '{"text": "a \\"quoted\\" }{ ✓ line\\n"}',
             '{"list": [1, 2, {"x": null}], "deep": {"a": {"b": []}}}']
NAMES = ["read_file", "delete_asset", "Bash", "send-mail", "x"]


def pieces(random, text):
    """A text in a few parts."""
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


def calls(random):
    return [(f"call_{n}", random.choice(NAMES), random.choice(ARGUMENTS)) for n in range(random.randrange(1, 4))]


def chat(random):
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return (None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})

    events = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Let me look."})]
    for index, (call, name, arguments) in enumerate(calls(random)):
        first = {"index": index, "id": call, "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(chunk({"tool_calls": [first]}))
        for part in pieces(random, arguments):
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    events.append(chunk({}, "tool_calls"))
    return [*events, (None, "[DONE]")]


def responses(random):
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "status": "in_progress"}
    events, output, number = [], [], 0

    def event(kind, **fields):
        nonlocal number
        events.append((kind, {"type": kind, "sequence_number": number, **fields}))
        number += 1

    event("response.created", response=base)
    for index, (call, name, arguments) in enumerate(calls(random)):
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": call, "name": name, "arguments": "",
                "status": "in_progress"}
        event("response.output_item.added", output_index=index, item=item)
        for part in pieces(random, arguments):
            event("response.function_call_arguments.delta", output_index=index, item_id=item["id"], delta=part)
        event("response.function_call_arguments.done", output_index=index, item_id=item["id"], arguments=arguments,
              name=name)
        done = {**item, "arguments": arguments, "status": "completed"}
        event("response.output_item.done", output_index=index, item=done)
        output.append(done)
    event("response.completed", response={**base, "status": "completed", "output": output})
    return events


def anthropic(random):
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    events = [("message_start", {"type": "message_start", "message": message}),
              ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
              ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hm."}}),
              ("content_block_stop", {"type": "content_block_stop", "index": 0}), ("ping", {"type": "ping"})]
    for index, (call, name, arguments) in enumerate(calls(random), 1):
        block = {"type": "tool_use", "id": call, "name": name, "input": {}}
        events.append(("content_block_start", {"type": "content_block_start", "index": index, "content_block": block}))
        for part in pieces(random, arguments):
            delta = {"type": "input_json_delta", "partial_json": part}
            events.append(("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}))
        events.append(("content_block_stop", {"type": "content_block_stop", "index": index}))
    events.append(("message_delta", {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                                     "usage": {"output_tokens": 9}}))
    return [*events, ("message_stop", {"type": "message_stop"})]


def gemini(random):
    def chunk(parts, finish=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        return (None, {"candidates": [candidate], "modelVersion": "m"})

    events = [chunk([{"text": "Let me look."}])]
    for call, name, arguments in calls(random):
        events.append(chunk([{"functionCall": {"id": call, "name": name, "args": json.loads(arguments)}}]))
    return [*events, chunk([{"text": ""}], "STOP")]


DIALECTS = {"chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini}


def places(value, path=()):
    """The paths of all members and elements of a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def parent(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


ODD = [None, "", 0, 1, -1, 2.5, "0", "x", True, False, [], {}, [{}], "function", "tool_use", "null", 10**20]


def spoil_field(random, event):
    """Changes one field of an event."""
    found = list(places(event))
    if not found:
        return
    path = random.choice(found)
    holder, key = parent(event, path), path[-1]
    match random.randrange(7):
        case 0:
            del holder[key]
        case 1:
            holder[key] = random.choice(ODD)
        case 2 if isinstance(holder, dict):
            holder[random.choice([str(key).upper(), f"{key}_", "_".join(c if c.islower() else f"_{c.lower()}" for c in [str(key)])])] = holder[key]
        case 3 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 4 if isinstance(holder[key], str) and holder[key]:
            text = holder[key]
            at = random.randrange(len(text) + 1)
            holder[key] = text[:at] + random.choice(["", " ", "}", "{", '"', "✓", "\u200b", "\\"]) + text[at:]
        case 5 if isinstance(holder[key], str) and len(holder[key]) > 1:
            holder[key] = holder[key][:random.randrange(len(holder[key]))]
        case _:
            other = random.choice(found)
            try:
                holder[key] = copy.deepcopy(parent(event, other)[other[-1]])
            except (KeyError, IndexError, TypeError):
                pass


def spoil_order(random, events):
    at = random.randrange(len(events))
    match random.randrange(5):
        case 0:
            del events[at]
        case 1:
            events.insert(random.randrange(len(events) + 1), copy.deepcopy(events[at]))
        case 2:
            events.insert(random.randrange(len(events)), events.pop(at))
        case 3:
            del events[at + 1:]
        case 4 if isinstance(events[at][1], dict):
            events[at] = (random.choice([None, "message", "error", events[at][0]]), events[at][1])


def split_name(random, events):
    """A tool's name over two events, where the dialect could do that."""
    for at, (name, event) in enumerate(events):
        try:
            function = event["choices"][0]["delta"]["tool_calls"][0]["function"]
            whole = function["name"]
            cut = random.randrange(len(whole) + 1)
            second = copy.deepcopy(event)
            function["name"] = whole[:cut]
            call = second["choices"][0]["delta"]["tool_calls"][0]
            call["function"]["name"] = whole[cut:]
            if random.random() < 0.5:
                call.pop("id", None)
            events.insert(at + 1, (name, second))
            return
        except (KeyError, IndexError, TypeError):
            continue


def written(random, events):
    """Events as bytes, in one of the forms that the standard allows, or nearly."""
    end = random.choice(["\n"] * 6 + ["\r\n", "\r"])
    escape = random.random() < 0.3
    out = random.choice([""] * 8 + ["\ufeff", ": hello\n\n"])
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=escape)
        if isinstance(data, dict) and random.random() < 0.02:
            # A member twice: the last one counts.
            text = text[0] + random.choice(['"choices": [], ', '"type": "ping", ', '"candidates": null, ']) + text[1:]
        if isinstance(data, dict) and random.random() < 0.02:
            text = json.dumps(data, indent=1)
        lines = [f"event: {name}"] if name else []
        colon = random.choice([": "] * 6 + [":"])
        lines += [f"data{colon}{line}" for line in text.split("\n")]
        if random.random() < 0.05:
            lines.insert(random.randrange(len(lines) + 1), random.choice([": note", "id: 7", "retry: 10", "data_: x"]))
        out += end.join(lines) + end + end
    body = out.encode("utf-8", "surrogatepass")
    if random.random() < 0.05:
        body = body.rstrip(b"\r\n")
    if random.random() < 0.05 and body:
        at = random.randrange(len(body))
        body = body[:at] + bytes([random.randrange(256)]) + body[at + random.randrange(2):]
    return body


def mutated(random, dialect):
    """A stream of this dialect, spoilt in up to four ways, as bytes."""
    events = DIALECTS[dialect](random)
    for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        kind = random.random()
        with_data = [event for _, event in events if isinstance(event, dict)]
        if kind < 0.6 and with_data:
            spoil_field(random, random.choice(with_data))
        elif kind < 0.7 and dialect == "chat":
            split_name(random, events)
        elif events:
            spoil_order(random, events)
    return written(random, events)


# What comes now is wider: other kinds of calls, other ends of lines, lines that are no data, and whole documents.

ODD_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\n"]


def wider_chat(random):
    """Several choices, the older function call, custom tools, arguments that are no text."""
    events = chat(random)
    kind = random.randrange(4)
    for _, event in events:
        if not isinstance(event, dict):
            continue
        for choice in event["choices"]:
            delta = choice["delta"]
            if kind == 0 and "tool_calls" in delta:
                delta["function_call"] = delta.pop("tool_calls")[0]["function"]
            elif kind == 1:
                choice["index"] = random.choice([0, 0, 0, 1])
            elif kind == 2:
                for call in delta.get("tool_calls", []):
                    if random.random() < 0.3:
                        call["id"] = random.choice(["", None, "call_0", "call_9"])
    return events


def wider_responses(random):
    """Custom tools beside functions."""
    events = responses(random)
    if random.random() < 0.5:
        events = json.loads(json.dumps(events).replace("function_call_arguments", "custom_tool_call_input")
                            .replace("function_call", "custom_tool_call").replace('"arguments"', '"input"'))
    return [tuple(event) for event in events]


def wider_anthropic(random):
    """Blocks that begin with an input, tools that Anthropic runs, and blocks in the message's start."""
    events = anthropic(random)
    for _, event in events:
        block = event.get("content_block", {})
        if block.get("type") == "tool_use" and random.random() < 0.3:
            block["type"] = random.choice(["tool_use", "server_tool_use", "mcp_tool_use"])
        if block.get("type") == "tool_use" and random.random() < 0.3:
            block["input"] = json.loads(random.choice(ARGUMENTS))
        if event["type"] == "message_start" and random.random() < 0.2:
            name = random.choice(NAMES)
            event["message"]["content"] = [{"type": "tool_use", "id": "t0", "name": name, "input": {"path": "/"}}]
    return events


def wider_gemini(random):
    """Several parts and candidates in one chunk, and snake case."""
    events = gemini(random)
    chunks = [event for _, event in events]
    if random.random() < 0.4:
        first = chunks[0]["candidates"][0]
        for other in chunks[1:]:
            first["content"]["parts"] += other["candidates"][0]["content"]["parts"]
        events = events[:1]
    elif random.random() < 0.4:
        chunks[0]["candidates"] += [one for other in chunks[1:] for one in other["candidates"]]
        events = events[:1]
    if random.random() < 0.3:
        events = json.loads(json.dumps(events).replace("functionCall", "function_call"))
    return [tuple(event) for event in events]


WIDER = {"chat": wider_chat, "responses": wider_responses, "anthropic": wider_anthropic, "gemini": wider_gemini}


def wide(random, dialect):
    """A stream of the wider kind, spoilt in up to three ways, as bytes."""
    events = WIDER[dialect](random)
    for _ in range(random.randrange(4)):
        with_data = [event for _, event in events if isinstance(event, dict)]
        if random.random() < 0.7 and with_data:
            spoil_field(random, random.choice(with_data))
        elif events:
            spoil_order(random, events)
    body = written(random, events).decode("utf-8", "surrogateescape")
    for _ in range(random.choice([0, 0, 1, 2])):
        # Another end of a line, where one is; or one before a field.
        places = [at for at in range(len(body)) if body[at] in "\r\n" or body.startswith("data", at)]
        if places:
            at = random.choice(places)
            cut = at + (body[at] in "\r\n")
            body = body[:at] + random.choice(ODD_ENDS) * random.randrange(1, 3) + body[cut:]
    if random.random() < 0.05:
        body = body.replace("data: ", "", 1)
    return body.encode("utf-8", "surrogateescape")


def documents(random, dialect):
    """A whole answer, spoilt in up to three ways, as bytes: in UTF-8 mostly."""
    made = calls(random)
    if dialect == "chat":
        tools = [{"id": call, "type": "function", "function": {"name": name, "arguments": text}} for call, name, text in made]
        message = {"role": "assistant", "content": None, "tool_calls": tools}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                  "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    elif dialect == "responses":
        output = [{"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": name, "arguments": text,
                   "status": "completed"} for call, name, text in made]
        answer = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": output, "status": "completed",
                  "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    elif dialect == "anthropic":
        blocks = [{"type": "tool_use", "id": call, "name": name, "input": json.loads(text)} for call, name, text in made]
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks,
                  "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    else:
        parts = [{"functionCall": {"id": call, "name": name, "args": json.loads(text)}} for call, name, text in made]
        answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
    for _ in range(random.randrange(4)):
        spoil_field(random, answer)
    text = json.dumps(answer, ensure_ascii=random.random() < 0.5, indent=random.choice([None, None, 1]))
    if random.random() < 0.1:
        odd = random.choice(["NaN", "-Infinity", "1e999", '"\\ud800"', "[" * 200 + "]" * 200])
        text = '{"' + random.choice(["usage", "model", "id", "x"]) + '":' + odd + "," + text.lstrip()[1:]
    code = random.choice(["utf-8"] * 8 + ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
    return text.encode(code, "surrogatepass")

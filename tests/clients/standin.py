"""A provider for the tests: OpenAI, Anthropic and Gemini in one small server, standard library only.

What it does is chosen by the end of the model's name, so that every SDK can ask for it:

    -plain    a short text                      -tool     a text and a call of get_weather
    -loop     the same tool call, every time    -costly   an answer that cost a fortune
    -endless  a stream that never ends; without streaming, an answer that never comes
    -bad      a 400 in the provider's own words -varied   a text that is another one each time
    -delete   a text and a call of delete_asset, another asset each time
    -listens  the same tool call until Deadstop says something; then a short text
    -deaf     the same tool call, every time; what is sent is kept, see GET /_sent/KEY

With `-gzip` before it, the body is compressed for clients that accept that.

Requests are counted by API key, and asked for with GET /_seen/KEY.
"""

import gzip
import json
import random
import re
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = ["The quick ", "brown föx ", "jumps \U0001f98a over", " the\nlazy", " \"dog\"."]
TOOL = ("get_weather", '{"city": "Paris", "days": 3}')
CREATED = 1_700_000_000
LONGEST = 6  # seconds that an endless answer lasts if it is not cut off


class Seen:
    """What has arrived, by API key."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests, self.open, self.calls, self.sent = {}, {}, 0, {}

    def add(self, where, key, n=1):
        with self.lock:
            where[key] = where.get(key, 0) + n

    def call_id(self):
        with self.lock:
            self.calls += 1
            return self.calls

    def of(self, key):
        with self.lock:
            return {"requests": self.requests.get(key, 0), "open": self.open.get(key, 0)}


def api_key(headers):
    """The key that a client brings, in whichever header its provider wants it."""
    bearer = (headers.get("authorization") or "").removeprefix("Bearer ").strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer


def babble():
    """Words that never repeat themselves enough to be a loop."""
    dice = random.Random()
    while True:
        words = ("".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 9))) for _ in range(6))
        yield " ".join(words) + " "


class Answer:
    """One answer, before it takes a provider's shape."""

    def __init__(self, model, seen, told=False):
        self.model = model
        self.kind = model.rsplit("-", 1)[-1]
        self.gzip = "-gzip-" in model
        varied = [next(babble()) for _ in range(4)] if self.kind == "varied" else TEXT
        self.pieces = babble() if self.kind == "endless" else varied
        self.text = "" if self.kind == "endless" else "".join(varied)
        repeats = self.kind in ("loop", "deaf") or (self.kind == "listens" and not told)
        self.tool = TOOL if repeats or self.kind == "tool" else None
        self.call = f"call_{seen.call_id()}" if repeats or self.kind == "delete" else "call_0"
        if self.kind == "delete":
            self.tool = ("delete_asset", json.dumps({"asset_id": f"asset-{self.call}"}))
        self.input, self.output = 11, 400_000 if self.kind == "costly" else 23


# OpenAI chat completions


def chat(a):
    message = {"role": "assistant", "content": a.text, "refusal": None, "annotations": []}
    if a.tool:
        name, arguments = a.tool
        message["tool_calls"] = [{"id": a.call, "type": "function", "function": {"name": name, "arguments": arguments}}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if a.tool else "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": CREATED, "model": a.model,
            "choices": [choice], "usage": chat_usage(a), "service_tier": "default", "system_fingerprint": "fp_1"}


def chat_usage(a):
    return {"prompt_tokens": a.input, "completion_tokens": a.output, "total_tokens": a.input + a.output,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
                                          "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}


def chat_events(a, body):
    usage = (body.get("stream_options") or {}).get("include_usage")

    def chunk(choices, **more):
        data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": a.model,
                "service_tier": "default", "system_fingerprint": "fp_1", "choices": choices}
        if usage:  # As the provider does: null until the last one.
            data["usage"] = None
        return None, {**data, **more}

    def delta(delta, finish=None):
        return chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    yield delta({"role": "assistant", "content": "", "refusal": None})
    for piece in a.pieces:
        yield delta({"content": piece})
    if a.tool:
        name, arguments = a.tool
        call = {"index": 0, "id": a.call, "type": "function", "function": {"name": name, "arguments": ""}}
        yield delta({"tool_calls": [call]})
        for half in (arguments[:9], arguments[9:]):
            yield delta({"tool_calls": [{"index": 0, "function": {"arguments": half}}]})
    yield delta({}, "tool_calls" if a.tool else "stop")
    if usage:
        yield chunk([], usage=chat_usage(a))
    yield None, "[DONE]"


# OpenAI responses


def response(a, done=True):
    usage = {"input_tokens": a.input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": a.output,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": a.input + a.output}
    return {"id": "resp_1", "object": "response", "created_at": CREATED, "status": "completed" if done else "in_progress",
            "background": False, "error": None, "incomplete_details": None, "instructions": None,
            "max_output_tokens": None, "model": a.model, "output": response_items(a) if done else [],
            "parallel_tool_calls": True, "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None}, "store": True, "temperature": 1.0,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "truncation": "disabled", "usage": usage if done else None, "user": None, "metadata": {}}


def response_items(a, status="completed"):
    done = status == "completed"
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": a.text}
    items = [{"id": "msg_1", "type": "message", "status": status, "content": [part] if done else [], "role": "assistant"}]
    if a.tool:
        name, arguments = a.tool
        items.append({"id": "fc_1", "type": "function_call", "status": status, "arguments": arguments if done else "",
                      "call_id": a.call, "name": name})
    return items


def response_events(a, _body):
    number = iter(range(1 << 30))

    def event(kind, **more):
        return kind, {"type": kind, "sequence_number": next(number), **more}

    begun, whole = response_items(a, "in_progress"), response_items(a)
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    yield event("response.created", response=response(a, done=False))
    yield event("response.in_progress", response=response(a, done=False))
    yield event("response.output_item.added", output_index=0, item=begun[0])
    yield event("response.content_part.added", **at, part={"type": "output_text", "annotations": [], "logprobs": [], "text": ""})
    for piece in a.pieces:
        yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
    yield event("response.output_text.done", **at, text=a.text, logprobs=[])
    yield event("response.content_part.done", **at, part=whole[0]["content"][0])
    yield event("response.output_item.done", output_index=0, item=whole[0])
    if a.tool:
        arguments, at = a.tool[1], {"item_id": "fc_1", "output_index": 1}
        yield event("response.output_item.added", output_index=1, item=begun[1])
        for half in (arguments[:9], arguments[9:]):
            yield event("response.function_call_arguments.delta", **at, delta=half)
        yield event("response.function_call_arguments.done", **at, name=a.tool[0], arguments=arguments)
        yield event("response.output_item.done", output_index=1, item=whole[1])
    yield event("response.completed", response=response(a))


# OpenAI embeddings


def embeddings(body):
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = []
    for index, text in enumerate(texts):
        numbers = [round(random.Random(f"{text}{i}").random(), 6) for i in range(8)]
        if body.get("encoding_format") == "base64":
            import base64
            import struct
            numbers = base64.b64encode(struct.pack("<8f", *numbers)).decode()
        data.append({"object": "embedding", "index": index, "embedding": numbers})
    return {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 5, "total_tokens": 5}}


# Anthropic messages


def message(a, whole=True):
    content = [{"type": "text", "text": a.text}]
    if a.tool:
        content.append({"type": "tool_use", "id": a.call, "name": a.tool[0], "input": json.loads(a.tool[1])})
    usage = {"input_tokens": a.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
             "output_tokens": a.output if whole else 1, "service_tier": "standard"}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": a.model,
            "content": content if whole else [], "stop_reason": message_end(a) if whole else None,
            "stop_sequence": None, "usage": usage}


def message_end(a):
    return "tool_use" if a.tool else "end_turn"


def message_events(a, _body):
    def event(kind, **more):
        return kind, {"type": kind, **more}

    yield event("message_start", message=message(a, whole=False))
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield event("ping")
    for piece in a.pieces:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    if a.tool:
        block = {"type": "tool_use", "id": a.call, "name": a.tool[0], "input": {}}
        yield event("content_block_start", index=1, content_block=block)
        for part in ("", a.tool[1][:9], a.tool[1][9:]):
            yield event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": part})
        yield event("content_block_stop", index=1)
    yield event("message_delta", delta={"stop_reason": message_end(a), "stop_sequence": None},
                usage={"output_tokens": a.output})
    yield event("message_stop")


# Gemini


def gemini_usage(a):
    return {"promptTokenCount": a.input, "candidatesTokenCount": a.output, "totalTokenCount": a.input + a.output,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": a.input}]}


def gemini(a, parts=None, last=True):
    if parts is None:
        parts = [{"text": a.text}] + gemini_call(a)
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    return {"candidates": [candidate], "usageMetadata": gemini_usage(a), "modelVersion": a.model, "responseId": "r1"}


def gemini_call(a):
    if not a.tool:
        return []
    return [{"functionCall": {"name": a.tool[0], "args": json.loads(a.tool[1])}}]


def gemini_events(a, _body):
    for piece in a.pieces:
        yield None, gemini(a, [{"text": piece}], last=False)
    yield None, gemini(a, gemini_call(a) or [{"text": ""}])


BAD = {
    "openai": {"error": {"message": "no such thing", "type": "invalid_request_error", "param": "x", "code": "bad_x"}},
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}},
    "gemini": {"error": {"code": 400, "message": "no such thing", "status": "INVALID_ARGUMENT"}},
}
ROUTES = {
    "/v1/chat/completions": ("openai", chat, chat_events),
    "/v1/responses": ("openai", response, response_events),
    "/v1/messages": ("anthropic", message, message_events),
}
GEMINI = re.compile(r"/v1(?:beta)?/models/([^:/]+):(generateContent|streamGenerateContent)$")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/_seen/"):
            return self.reply(200, self.server.seen.of(path.removeprefix("/_seen/")))
        if path.startswith("/_sent/"):
            return self.reply(200, self.server.seen.sent.get(path.removeprefix("/_sent/"), []))
        if path.startswith("/v1/models"):
            return self.reply(200, {"object": "list", "data": [
                {"id": "standin-plain", "object": "model", "created": CREATED, "owned_by": "us"}]})
        self.reply(404, BAD["openai"])

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        body = json.loads(raw)
        self.server.seen.add(self.server.seen.requests, api_key(self.headers))
        path = self.path.partition("?")[0]
        if path == "/v1/embeddings":
            return self.reply(200, embeddings(body))
        if path == "/v1/messages/count_tokens":
            return self.reply(200, {"input_tokens": 42})
        google = GEMINI.search(path)
        if google:
            family, whole, events = "gemini", gemini, gemini_events
            model, stream = google[1], google[2].startswith("stream")
        elif path in ROUTES:
            family, whole, events = ROUTES[path]
            model, stream = body["model"], body.get("stream", False)
        else:
            return self.reply(404, BAD["openai"])
        answer = Answer(model, self.server.seen, b"[Deadstop] " in raw)
        if answer.kind == "deaf":
            self.server.seen.sent.setdefault(api_key(self.headers), []).append(raw.decode())
        answer.gzip = answer.gzip and "gzip" in (self.headers.get("accept-encoding") or "")
        if answer.kind == "bad":
            self.reply(400, BAD[family])
        elif stream:
            self.stream(events(answer, body), answer, "\r\n" if google else "\n")
        elif answer.kind == "endless":
            self.hang()
        else:
            self.reply(200, whole(answer), compress=answer.gzip)

    def reply(self, status, value, compress=False):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("x-request-id", "req_1")
        self.send_header("request-id", "req_1")
        if compress:
            data = gzip.compress(data)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, answer, line):
        compress = answer.gzip
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("x-request-id", "req_1")
        self.send_header("request-id", "req_1")
        self.send_header("transfer-encoding", "chunked")
        if compress:
            self.send_header("content-encoding", "gzip")
        self.end_headers()
        key, until = api_key(self.headers), time.monotonic() + LONGEST
        endless = answer.kind == "endless"
        squeeze = gzip.GzipFile(fileobj=Chunks(self.wfile), mode="wb") if compress else None
        self.server.seen.add(self.server.seen.open, key)
        try:
            for name, data in events:
                data = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
                event = (f"event: {name}{line}" if name else "") + f"data: {data}{line}{line}"
                if squeeze:
                    squeeze.write(event.encode())
                    squeeze.flush()
                else:
                    Chunks(self.wfile).write(event.encode())
                if endless:
                    if time.monotonic() > until or self.gone():
                        self.close_connection = True
                        return
                    time.sleep(0.01)
            if squeeze:
                squeeze.close()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True
        finally:
            self.server.seen.add(self.server.seen.open, key, -1)

    def hang(self):
        key, until = api_key(self.headers), time.monotonic() + LONGEST
        self.server.seen.add(self.server.seen.open, key)
        while time.monotonic() < until and not self.gone():
            time.sleep(0.01)
        self.server.seen.add(self.server.seen.open, key, -1)
        self.close_connection = True

    def gone(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable)


class Chunks:
    """A file whose every write is a chunk of the body."""

    def __init__(self, out):
        self.out = out

    def write(self, data):
        if data:
            self.out.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.out.flush()
        return len(data)

    def flush(self):
        pass


class Server(ThreadingHTTPServer):
    """On a free port, with its address in `url`. Clients that are stopped leave without a word."""

    #: Connections that wait to be taken: five are usual, and the system lets the others try again seconds later.
    request_queue_size = 512
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.seen = Seen()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def begin(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


def start():
    return Server(Handler).begin()


if __name__ == "__main__":
    print(start().url, flush=True)
    threading.Event().wait()

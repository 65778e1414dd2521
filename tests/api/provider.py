"""A stand-in for providers, and a listener for alerts. What it answers is planned by the test, under
the model's name; what it is sent is kept only where it is an alert.
"""

import http.server
import json
import re
import threading
import urllib.parse


class Plan:
    """What a model answers."""

    def __init__(self, text="", tool=None, stream=False, status=200, piece=5, breaks_at=None):
        self.text, self.tool, self.stream, self.status, self.piece = text, tool, stream, status, piece
        self.breaks_at = breaks_at

    def pieces(self, text):
        text = text[:self.breaks_at]
        return [text[at:at + self.piece] for at in range(0, len(text), self.piece)]


class Provider:
    def __init__(self):
        self.plans, self.alerts, self.reply = {}, [], b"thanks"
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.path.startswith("/alert"):
                    provider.alerts.append(repr(self.headers.items()).encode() + body)
                    return self.whole(200, "text/plain", provider.reply)
                self.answer(body)

            def answer(self, body):
                try:
                    asked = json.loads(body)
                except ValueError:
                    return self.whole(400, "application/json", b'{"error":{"message":"no JSON"}}')
                in_path = re.search(r"/models/([^/:]+)", self.path)
                model = urllib.parse.unquote(in_path[1]) if in_path else asked.get("model")
                plan = provider.plans.get(str(model)) or Plan("fine")
                api = "gemini" if in_path else "anthropic" if self.path.endswith("/messages") else "openai"
                if plan.status != 200:
                    fault = {"error": {"message": plan.text, "type": "x", "code": None}}
                    return self.whole(plan.status, "application/json", json.dumps(fault).encode())
                if plan.stream and api != "gemini":
                    return self.events(events(api, plan))
                self.whole(200, "application/json", json.dumps(whole(api, plan)).encode())

            def whole(self, status, kind, body):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def events(self, found):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for event in found:
                        self.wfile.write(event.encode())
                except OSError:
                    pass  # It was stopped on the way.

        class Many(http.server.ThreadingHTTPServer):
            request_queue_size = 256

        self.server = Many(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def whole(api, plan):
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    if api == "openai":
        message = {"role": "assistant", "content": plan.text}
        if plan.tool:
            name, arguments = plan.tool
            function = {"name": name, "arguments": json.dumps(arguments)}
            message |= {"content": None, "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}
        return {"id": "c", "object": "chat.completion", "model": "m", "usage": usage,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    if api == "anthropic":
        content = [{"type": "text", "text": plan.text}]
        if plan.tool:
            content = [{"type": "tool_use", "id": "call-1", "name": plan.tool[0], "input": plan.tool[1]}]
        return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
                "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 5}}
    part = {"functionCall": {"name": plan.tool[0], "args": plan.tool[1]}} if plan.tool else {"text": plan.text}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 5, "totalTokenCount": 10}}


def events(api, plan):
    """The answer in pieces of a few characters, so that every secret is torn."""
    if api == "openai":
        def chunk(delta, reason=None):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return f"data: {json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
        yield chunk({"role": "assistant", "content": ""})
        if plan.tool:
            name, arguments = plan.tool
            start = {"index": 0, "id": "call-1", "type": "function", "function": {"name": name, "arguments": ""}}
            yield chunk({"tool_calls": [start]})
            for piece in plan.pieces(json.dumps(arguments)):
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        for piece in plan.pieces(plan.text):
            yield chunk({"content": piece})
        if plan.breaks_at is not None:
            return
        yield chunk({}, "stop") + "data: [DONE]\n\n"
        return

    def event(kind, **more):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
               "stop_reason": None, "usage": {"input_tokens": 5, "output_tokens": 1}}
    yield event("message_start", message=message)
    if plan.tool:
        block = {"type": "tool_use", "id": "call-1", "name": plan.tool[0], "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in plan.pieces(json.dumps(plan.tool[1]))]
    else:
        block = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in plan.pieces(plan.text)]
    yield event("content_block_start", index=0, content_block=block)
    for delta in deltas:
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
    yield event("message_stop")

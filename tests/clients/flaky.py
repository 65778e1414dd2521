"""A provider that fails: the stand-in, which does something else first for requests that are due.

Ways to fail: an HTTP status as a number; `reset` (the connection is closed before an answer), `torn` (the
answer breaks off in the middle) and `timeout` (no answer for longer than the gateway waits). A test gives
an API key a list of ways (`plan`), used up by its requests one by one, or a schedule for all requests.
"""

import json
import socket
import struct
import threading
import time

import standin

ERRORS = {
    "openai": {"error": {"message": "try later", "type": "server_error", "param": None, "code": None}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "try later"}},
}


class Handler(standin.Handler):
    def do_POST(self):
        way = self.server.way(standin.api_key(self.headers))
        if way is None:
            return super().do_POST()
        family = "anthropic" if self.path.endswith("/messages") else "openai"
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        if isinstance(way, int):
            return self.reply(way, ERRORS[family])
        if way == "torn":
            self.tear(body.get("stream", False))
        elif way == "timeout":
            self.hang()
        return self.reset()

    def tear(self, stream):
        self.send_response(200)
        if stream:
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            standin.Chunks(self.wfile).write(b": a comment\n\n")
        else:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b'{"id": "')
        self.wfile.flush()

    def reset(self):
        """Closes the connection so that the other end sees a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class Server(standin.Server):
    def __init__(self):
        super().__init__(Handler)
        self.lock, self.plans, self.failed = threading.Lock(), {}, {}
        self.schedule = lambda _seconds: None
        self.began = time.monotonic()

    def plan(self, key, ways):
        with self.lock:
            self.plans[key] = list(ways)

    def way(self, key):
        with self.lock:
            plan = self.plans.get(key)
            way = plan.pop(0) if plan else self.schedule(time.monotonic() - self.began)
            if way is not None:
                self.failed[way] = self.failed.get(way, 0) + 1
            return way


def start():
    return Server().begin()

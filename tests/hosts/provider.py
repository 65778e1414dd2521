"""A provider that keeps asking for a shell command, for coding agents: Anthropic, OpenAI and Gemini.

Each answer asks the host's own shell tool to make a file, a new one each time, until there are as
many results in the conversation as `rounds`; then it says that it is done. It remembers what it was
asked, so that tests can see what an agent was told. The first `overloaded` model calls get a 529.
"""

import json
import pathlib
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import standin  # noqa: E402

GEMINI = re.compile(r"/v1(?:beta)?/models/([^:/]+):(generateContent|streamGenerateContent|countTokens)$")


class Turn:
    """One answer, as the stand-in's writers want it."""

    def __init__(self, model, tool, number):
        self.model, self.tool, self.call = model, tool, f"call_{number}"
        self.text = "I make a file." if tool else "All done."
        self.pieces, self.input, self.output = [self.text], 20, 10


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.reply({})

    def do_GET(self):
        self.reply({"object": "list", "data": [], "models": []})

    def do_POST(self):
        self.raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        try:
            body = json.loads(self.raw or b"{}")
        except ValueError:
            return self.reply({})
        google = GEMINI.search(path)
        if path.endswith("/messages") and self.server.is_overloaded():
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            return self.reply(error, 529)
        if path.endswith("/messages") and body.get("stream"):
            results = [block for message in body["messages"] if isinstance(message["content"], list)
                       for block in message["content"] if block.get("type") == "tool_result"]
            names = {tool.get("name") for tool in body.get("tools") or []}
            turn = self.turn(body, body["model"], results, shell_of(names), lambda command: shell(names, command))
            self.stream(standin.message_events(turn, body))
        elif path.endswith("/messages"):
            self.reply(standin.message(Turn(body.get("model", "m"), None, 0)))
        elif path.endswith("/responses"):
            results = [item for item in body.get("input", []) if str(item.get("type")).endswith("call_output")]
            names = {tool.get("name") or tool.get("type") for tool in body.get("tools") or []}
            turn = self.turn(body, body["model"], results, bool(names), lambda command: codex_tool(names, command))
            self.stream(standin.response_events(turn, body))
        elif path.endswith("/chat/completions"):
            results = [message for message in body["messages"] if message.get("role") == "tool"]
            names = {tool.get("function", {}).get("name") for tool in body.get("tools") or []}
            turn = self.turn(body, body["model"], results, shell_of(names), lambda command: shell(names, command))
            if body.get("stream"):
                self.stream(standin.chat_events(turn, body))
            else:
                self.reply(standin.chat(turn))
        elif google and google[2] == "countTokens":
            self.reply({"totalTokens": 20})
        elif google:
            results = [part for content in body.get("contents", []) for part in content.get("parts", [])
                       if "functionResponse" in part]
            has_tools = "run_shell_command" in json.dumps(body.get("tools") or [])
            turn = self.turn(body, google[1], results, has_tools,
                             lambda command: ("run_shell_command", json.dumps({"command": command})))
            if google[2].startswith("stream"):
                self.stream(standin.gemini_events(turn, body), "\r\n")
            else:
                self.reply(standin.gemini(turn))
        else:
            self.reply({})

    def turn(self, body, model, results, has_tools, tool):
        server = self.server
        if not has_tools:
            return Turn(model, None, 0)
        with server.lock:
            server.asked.append(body)
            server.last = self.path, self.headers.items(), self.raw
            number = len(server.asked)
        if len(results) >= server.rounds:
            return Turn(model, None, number)
        if server.script:
            return Turn(model, tool(server.script[len(results)]), number)
        return Turn(model, tool((server.same or f"touch {server.folder}/ran-{{number}}").format(number=number)), number)

    def reply(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, end="\n"):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}{end}" if name else ""
            data = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {data}{end}{end}".encode())
            self.wfile.flush()
        self.close_connection = True


def shell_of(names):
    """What a host calls its shell."""
    return next((name for name in ("Bash", "bash", "run_shell_command", "run_commands") if name in names), None)


def shell(names, command):
    name = shell_of(names)
    if name == "run_commands":
        return name, json.dumps({"commands": [command]})
    more = {"is_background": False} if name == "run_shell_command" else {}
    return name, json.dumps({"command": command, "description": "make", **more})


def codex_tool(names, command):
    """Codex calls its shell by other names from version to version."""
    if "exec_command" in names:
        return "exec_command", json.dumps({"cmd": command})
    if "shell_command" in names:
        return "shell_command", json.dumps({"command": command})
    return "shell", json.dumps({"command": ["bash", "-lc", command]})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    #: The command that is asked for each time, instead of making files; `{number}` is another one each time.
    same = None
    #: Commands that are asked for one after the other, instead of making files: as many as there are rounds.
    script = None
    overloaded = 0
    #: The model call that came last: path, headers and body.
    last = None

    def is_overloaded(self):
        with self.lock:
            self.overloaded -= 1
            return self.overloaded >= 0

    def handle_error(self, *_):
        pass  # Agents that are stopped leave without a word.


def start(folder, rounds):
    """Starts one on a free port; `folder` is where its commands make files."""
    server = Server(("127.0.0.1", 0), Handler)
    server.lock, server.asked = threading.Lock(), []
    server.folder, server.rounds = folder, rounds
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

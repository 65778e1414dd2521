"""A model that keeps asking for the log of a build, as OpenAI's chat completions: with each framework's own
tool, as text where the framework reads its calls from text.

In a loop it asks for the same build each time, in a healthy run for `rounds` others, and says then that it is
done. It counts what it was asked, and `hold` makes it slow.
"""

import json
import pathlib
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
sys.dont_write_bytecode = True
import standin  # noqa: E402


class Turn:
    def __init__(self, model, tool, number, text):
        self.model, self.tool, self.call, self.text = model, tool, f"call_{number}", text
        self.pieces, self.input, self.output = [text], 20, 10


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        server = self.server
        with server.lock:
            server.last = self.path, self.headers.items(), raw
            server.asked.append(time.monotonic())
            number = len(server.asked)
        if server.hold:
            time.sleep(server.hold)
        turn = self.turn(body, number)
        # Another id for each answer: LangChain.js takes answers with one id for one message.
        own = {"id": f"chatcmpl-{number}"}
        if not body.get("stream"):
            return self.reply(json.dumps(standin.chat(turn) | own).encode(), "application/json")
        events = [(name, data if isinstance(data, str) else data | own) for name, data in standin.chat_events(turn, body)]
        lines = [f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n" for _, data in events]
        self.reply("".join(lines).encode(), "text/event-stream")

    def turn(self, body, number):
        server = self.server
        over = number > server.rounds
        build = "7" if server.same else str(number)
        words = json.dumps(body.get("messages"))
        tools = [tool["function"]["name"] for tool in body.get("tools") or [] if "function" in tool]
        model = body.get("model", "m")
        if "next_tool_name" in words or "[[ ##" in words:
            return Turn(model, None, number, dspy(words, over, build))
        name = next((tool for tool in tools if "get_build" in tool), None)
        if not over and name:
            return Turn(model, (name, json.dumps({"number": build})), number, "I look.")
        if "Build" in tools:
            return Turn(model, ("Build", json.dumps({"number": "seven" if server.same else int(build)})), number, "")
        if "bash" in tools:
            done = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"
            command = done if over else f"cat build-{build}.log" if server.same else f"echo tool: build {build}"
            return Turn(model, ("bash", json.dumps({"command": command})), number, "I look.")
        if "final_answer" in tools:
            return Turn(model, ("final_answer", json.dumps({"answer": "All done."})), number, "")
        return Turn(model, None, number, "All done.")

    def reply(self, data, kind):
        try:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # A client that was stopped has left.


def dspy(words, over, build):
    """What DSPy reads: fields, each below its own heading."""
    if "next_tool_name" not in words:
        fields = {"reasoning": "I have looked.", "answer": "All done."}
    else:
        tool, arguments = ("finish", {}) if over else ("get_build", {"number": build})
        fields = {"next_thought": "I look.", "next_tool_name": tool, "next_tool_args": json.dumps(arguments)}
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in fields.items()) + "[[ ## completed ## ]]"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def start(rounds, same, hold=0):
    server = Server(("127.0.0.1", 0), Handler)
    server.lock, server.asked, server.last = threading.Lock(), [], None
    server.rounds, server.same, server.hold = rounds, same, hold
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

"""One trace through an MCP client, Deadstop and an MCP server: the official Python SDK at both ends, which names a
message's span in `params._meta` and reads it there. The client's span is around ours, and ours around the server's. A
Deadstop that exports nothing leaves the two as they are."""

import os
import socket
import subprocess

import collector
import install
from emitters import FOREIGN
from metrics import free_port
from server import Server

HERE = install.HERE / "mcp"
#: Of our span of a tool call.
ATTRIBUTES = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "mcp.method.name": "tools/call",
              "deadstop.mcp_server": "counter", "deadstop.verdict": "allow"}


def environment(url, service):
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
    return kept | {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": service, "PYTHONDONTWRITEBYTECODE": "1"}


def ran(command, env):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=env)
    return None if done.returncode == 0 else f"the client ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"


def call(found, service, name):
    """The only span of a program with this name."""
    spans = [span for span in found["spans"] if (span["resource"].get("service.name"), span["name"]) == (service, name)]
    return spans[0] if len(spans) == 1 else None


def chain(found, wanted):
    """What is wrong with spans that should be one below the other, the outermost first."""
    spans = [call(found, *each) for each in wanted]
    if not all(spans):
        known = sorted({(span["resource"].get("service.name"), span["name"]) for span in found["spans"]})
        return [f"not one span of each of {wanted}: {known}"]
    problems = []
    for above, below in zip(spans, spans[1:]):
        if (below["trace"], below["parent"]) != (above["trace"], above["span"]):
            problems.append(f"{below['name']} of {below['resource']['service.name']} is not below {above['name']} "
                            f"of {above['resource']['service.name']}")
    return problems


def check(binary, folder):
    problems = []
    python = install.mcp()
    decoder = install.python()
    client, server = ("agent", "MCP send tools/call add"), ("counter", "tools/call add")
    ours = ("deadstop", "execute_tool add")
    for exports in (True, False):
        for way in ("http", "stdio"):
            name = f"{way}, {'exporting' if exports else 'exporting nothing'}"
            got = collector.Collector(folder / f"{way}-{exports}")
            port = free_port()
            config = f'[mcp.servers.counter]\nurl = "http://127.0.0.1:{port}/mcp"\n'
            if exports:
                config += f'[telemetry]\notlp_endpoint = "{got.url}"\n'
            deadstop = Server(binary, folder / f"server-{way}-{exports}", config)
            own = environment(got.url, "counter")
            counter = None
            try:
                if way == "http":
                    counter = subprocess.Popen([python, HERE / "server.py", "http", str(port)], env=own,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    if not collector.until(lambda port=port: listens(port), 60):
                        return [f"{name}: the MCP server did not start"]
                    command = [f"{deadstop.url}/mcp/counter"]
                else:
                    # The server behind the wrapper has its own name.
                    command = [binary, "mcp", "--via", deadstop.url, "--server", "counter", "--", "env",
                               "OTEL_SERVICE_NAME=counter", python, HERE / "server.py", "stdio"]
                wrong = ran([python, HERE / "client.py", *command], environment(got.url, "agent"))
                wanted = [client, ours, server] if exports else [client, server]
                arrived = lambda: all(call(got.decoded(decoder), *each) for each in wanted)  # noqa: E731
                collector.until(arrived, 10)
                found = got.decoded(decoder)
                wrong = [wrong] if wrong else chain(found, wanted)
                told = (call(found, *ours) or {"attributes": {}, "kind": None})
                if not exports and told["kind"]:
                    wrong.append("Deadstop exported a span")
                for key, value in ATTRIBUTES.items() if exports else ():
                    if told["attributes"].get(key) != value:
                        wrong.append(f"{key}: {told['attributes'].get(key)!r}, not {value!r}")
                print(f"mcp: {name}: {'FAILED' if wrong else 'ok'}", flush=True)
                problems += [f"{name}: {each}" for each in wrong]
            finally:
                if counter:
                    counter.terminate()
                    counter.wait(20)
                deadstop.stop()
                got.close()
    return problems


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False

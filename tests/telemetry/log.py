"""`--log-format json`: every line is one JSON object, and each kill, trip and order is there once."""

import json
import socket
import urllib.parse

import calls
from server import Server


class Logged(Server):
    """A server that logs JSON."""

    def __init__(self, binary, folder, config):
        super().__init__(binary, folder, config, log="info,deadstop::call=debug", more=["--log-format", "json"])


def lines(server):
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def speak_http2(server):
    """The first bytes of an exporter that sends OTLP over gRPC, until the server hangs up."""
    place = urllib.parse.urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while line.recv(4096):
            pass


def check(binary, folder):
    problems = []
    upstream, config = calls.provider()
    server = Logged(binary, folder, config)
    try:
        for _ in range(3):
            speak_http2(server)
        status, tries = calls.until_stopped(server, "looper", "s1")
        if status is None:
            problems.append(f"nothing was refused in {tries} calls")
        server.json("POST", "/api/kill", {"agent": "looper", "reason": "it \"loops\"\nagain"})
        server.json("POST", "/api/clear", {"agent": "looper", "reason": "fixed"})
        incidents = server.json("GET", "/api/incidents")["items"]
    finally:
        stopped = server.stop()
    if not stopped:
        problems.append("the server did not stop")
    found = lines(server)
    for line in found:
        if not {"timestamp", "level", "target", "message"} <= line.keys():
            problems.append(f"a line lacks fields: {line}")
    by = lambda target: [line for line in found if line["target"] == target]  # noqa: E731
    warned = [line for line in found if "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in line.get("message", "")]
    if [line["level"] for line in warned] != ["WARN"]:
        problems.append(f"a client that speaks HTTP/2 is warned of {len(warned)} times, not once")
    orders = [(line["order"], line["agent"], line["reason"]) for line in by("deadstop::order")]
    if orders != [("kill", "looper", "it \"loops\"\nagain"), ("clear", "looper", "fixed")]:
        problems.append(f"orders: {orders}")
    known = {incident["id"] for incident in incidents}
    tripped = by("deadstop::trip") + by("deadstop::kill")
    told = {line["incident"] for line in tripped if "incident" in line}
    if not known or told != known:
        problems.append(f"incidents {known}, and the log has {told}")
    keys = [(line["call"], line["guard"], line["verdict"]) for line in tripped]
    if len(keys) != len(set(keys)):
        problems.append(f"a trip is there twice: {keys}")
    for line in tripped:
        if (line["agent"], line["session"]) != ("looper", "s1"):
            problems.append(f"not its agent and session: {line}")
        span = line.get("span", {})
        if (span.get("agent"), span.get("session")) != ("looper", "s1"):
            problems.append(f"not in the span of its request: {line}")
    if by("deadstop::kill") and not all(line["level"] == "WARN" for line in by("deadstop::kill")):
        problems.append("a kill is not a warning")
    if not any(line.get("message") == "ended" for line in by("deadstop::call")):
        problems.append("no call is there")
    return problems

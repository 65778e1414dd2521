"""What Deadstop exports, decoded by the official protobuf classes (`opentelemetry-proto` from PyPI), attribute by
attribute; and collectors that hang, refuse or disappear, which no call may notice.

No package of the OpenTelemetry Collector is installed here; the receiver below stands in its place.
"""

import http.server
import json
import os
import pathlib
import subprocess
import threading
import time

import calls
import install
from server import Server

HERE = pathlib.Path(__file__).resolve().parent
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps what is posted to it; `mood` says how it answers."""

    def __init__(self, folder):
        self.folder, self.mood, self.got, self.heads = folder, "takes", 0, []
        folder.mkdir(parents=True, exist_ok=True)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if outer.mood == "hangs":
                    time.sleep(30)
                    return
                if outer.mood == "refuses":
                    self.send_response(400)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                outer.got += 1
                outer.heads.append((self.path, dict(self.headers)))
                (folder / f"{self.path.rsplit('/', 1)[-1]}-{outer.got:04}").write_bytes(body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def decoded(self, python):
        """All that arrived, decoded by the official classes, as JSON."""
        ran = subprocess.run([python, HERE / "decode.py", self.folder], capture_output=True, text=True, timeout=60)
        if ran.returncode != 0:
            raise AssertionError(f"the official classes cannot decode it: {ran.stderr[-2000:]}")
        return json.loads(ran.stdout)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


CONFIG = """
[telemetry]
otlp_endpoint = "{url}"
headers = {{ x-team = "blue" }}
resource = {{ "deployment.environment.name" = "test" }}
"""


def check(binary, folder):
    problems = []
    python = install.python()
    # Metrics are sent every second here, not every minute.
    os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "1000"
    upstream, config = calls.provider()
    collector = Collector(folder / "got")
    server = Server(binary, folder / "server", CONFIG.format(url=collector.url) + config)
    try:
        header = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        calls.chat(server, "gpt-4o-plain", "inside", "t1", headers=header)
        calls.chat(server, "gpt-4o-plain", "inside", "t2", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        calls.chat(server, "gpt-4o-plain", "alone", "a1")
        calls.chat(server, "gpt-4o-bad", "alone", "a2")
        status, _ = calls.until_stopped(server, "looper", "s1")
        if status is None:
            problems.append("nothing was refused")
        incidents = {one["id"] for one in server.json("GET", "/api/incidents")["items"]}
        if not until(lambda: any(span["attributes"].get("deadstop.incident")
                                 for span in collector.decoded(python)["spans"])):
            problems.append("no refused call arrived")
        server.json("POST", "/api/kill", {"agent": "looper", "reason": "enough"})

        def all_there():
            found = collector.decoded(python)
            return found["metrics"] and any(line["event"] == "deadstop.order" for line in found["logs"])

        if not until(all_there):
            problems.append("no metrics, or no logs")
        found = collector.decoded(python)
        problems += lines(found, incidents) + metrics(found)
        problems += spans(found, incidents)
        for path, heads in collector.heads:
            if heads.get("x-team") != "blue" or heads.get("content-type") != "application/x-protobuf":
                problems.append(f"{path}: {heads}")
        problems += moods(server, collector)
    finally:
        if not server.stop():
            problems.append("the server did not stop while its collector was away")
    problems += stops(binary, folder, python, config)
    return problems


def stops(binary, folder, python, config):
    """A server that is told to stop (SIGTERM) sends what waits, with the runs; one whose collector hangs stops all the same."""
    problems = []
    collector = Collector(folder / "last")
    server = Server(binary, folder / "stops", CONFIG.format(url=collector.url) + config)
    calls.chat(server, "gpt-4o-plain", "late", "l1", "one")
    calls.chat(server, "gpt-4o-plain", "late", "l1", "two")
    calls.chat(server, "gpt-4o-plain", "late", "l2", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    calls.until_stopped(server, "looper", "s2")
    if not server.stop():
        problems.append("the server did not stop")
    found = collector.decoded(python)
    by = {}
    for span in found["spans"]:
        attributes = span["attributes"]
        by.setdefault((attributes["gen_ai.conversation.id"], attributes["gen_ai.operation.name"]), []).append(span)
    chats, runs = by.get(("l1", "chat"), []), by.get(("l1", "invoke_agent"), [])
    if (len(chats), len(runs)) != (2, 1):
        return problems + [f"{len(chats)} calls and {len(runs)} runs of l1 when the server stopped: {sorted(by)}"]
    run = runs[0]
    if (run["name"], run["kind"], run["parent"]) != ("invoke_agent late", "SPAN_KIND_INTERNAL", ""):
        problems.append(f"a run: {run}")
    for chat in chats:
        if (chat["parent"], chat["trace"]) != (run["span"], run["trace"]):
            problems.append(f"a call that is not below its run: {chat}")
        if not run["start"] <= chat["start"] <= chat["end"] <= run["end"]:
            problems.append("a run that is shorter than its calls")
    for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
        if run["attributes"].get(key) != sum(chat["attributes"][key] for chat in chats):
            problems.append(f"{key} of a run: {run['attributes'].get(key)!r}")
    if ("l2", "invoke_agent") in by or by[("l2", "chat")][0]["parent"] != PARENT:
        problems.append("a call below its caller's span has a run of ours")
    looped = by.get(("s2", "execute_tool"), [])
    ids = [span["attributes"].get("gen_ai.tool.call.id") for span in looped]
    if not ids or not all(ids):
        problems.append(f"ids of tool calls: {ids}")
    if len(by.get(("s2", "invoke_agent"), [])) != 1:
        problems.append("no run of the loop")
    if not found["metrics"] or not any(line["event"] in ("deadstop.trip", "deadstop.kill") for line in found["logs"]):
        problems.append("no metrics or no logs when the server stopped")
    collector.mood = "hangs"
    server = Server(binary, folder / "hangs", CONFIG.format(url=collector.url) + config)
    calls.chat(server, "gpt-4o-plain", "late", "l3")
    began = time.monotonic()
    stopped = server.stop()
    took = time.monotonic() - began
    print(f"collector: a stop while it hangs: {took:.2f} s")
    # An attempt to send may take ten seconds.
    if not stopped or took > 8:
        problems.append(f"the server stopped after {took:.1f} s while its collector hung")
    collector.close()
    return problems


def spans(found, incidents):
    problems = []

    def expect(what, got, wanted):
        if got != wanted:
            problems.append(f"{what}: {got!r}, not {wanted!r}")

    by = {}
    for span in found["spans"]:
        attributes = span["attributes"]
        by.setdefault((attributes["gen_ai.agent.name"], attributes["gen_ai.conversation.id"]), []).append(span)
    inside = by.get(("inside", "t1"), [{}])[0]
    if not inside:
        return problems + [f"no span of the agent inside: {sorted(by)}"]
    expect("trace", inside["trace"], TRACE)
    expect("parent", inside["parent"], PARENT)
    expect("name", inside["name"], "chat gpt-4o-plain")
    expect("kind", inside["kind"], "SPAN_KIND_CLIENT")
    expect("status", inside["status"], "STATUS_CODE_UNSET")
    expect("scope", inside["scope"], "deadstop")
    expect("resource", {key: inside["resource"].get(key) for key in ("service.name", "deployment.environment.name")},
           {"service.name": "deadstop", "deployment.environment.name": "test"})
    wanted = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-plain",
              "gen_ai.response.model": "gpt-4o-plain", "gen_ai.provider.name": "local", "gen_ai.agent.name": "inside", "gen_ai.conversation.id": "t1",
              "deadstop.project": "default", "deadstop.verdict": "allow"}
    attributes = inside["attributes"]
    expect("attributes", {key: attributes.get(key) for key in wanted}, wanted)
    for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
        if not isinstance(attributes.get(key), int) or attributes[key] <= 0:
            problems.append(f"{key}: {attributes.get(key)!r}")
    if not isinstance(attributes.get("deadstop.cost_usd"), float):
        problems.append(f"cost: {attributes.get('deadstop.cost_usd')!r}")
    if not 0 < inside["start"] <= inside["end"]:
        problems.append("it ends before it begins")
    expect("a trace that its caller does not record", by.get(("inside", "t2")), None)
    alone = by[("alone", "a1")][0]
    runs = {span["parent"] for span in by[("looper", "s1")]}
    if len(runs) != 1 or runs & {"", PARENT, alone["parent"]} or alone["parent"] in ("", PARENT):
        problems.append(f"calls that are not below a run of their session: {runs}, {alone['parent']}")
    if alone["trace"] in (TRACE, "0" * 32):
        problems.append(f"a trace of its own: {alone['trace']}")
    failed = by[("alone", "a2")][0]
    expect("a refusal of the provider", failed["status"], "STATUS_CODE_ERROR")
    expect("its class", failed["attributes"].get("error.type"), "400")
    refused = [span for span in by[("looper", "s1")] if span["attributes"].get("deadstop.incident")]
    for span in refused:
        if span["attributes"]["deadstop.incident"] not in incidents:
            problems.append(f"an incident that is not known: {span}")
        expect("guard", span["attributes"].get("deadstop.guard"), "loop")
        for key in ("deadstop.reason", "deadstop.measured", "deadstop.limit"):
            if not span["attributes"].get(key):
                problems.append(f"no {key}: {span['attributes']}")
    tools = [span for span in by[("looper", "s1")] if span["name"].startswith("execute_tool ")]
    if not tools or tools[0]["attributes"].get("gen_ai.tool.name") != "get_weather":
        problems.append("no tool call, or without its name")
    if not all(span["attributes"].get("gen_ai.tool.call.id") for span in tools):
        problems.append("a tool call without its id")
    expect("one session is one trace", len({span["trace"] for span in by[("looper", "s1")]}), 1)
    ids = [span["span"] for span in found["spans"]]
    expect("ids are not used twice", len(ids), len(set(ids)))
    text = json.dumps(found)
    for secret in ("sk-x", "Paris", "quick"):
        if secret in text:
            problems.append(f"`{secret}` was exported")
    return problems


def lines(found, incidents):
    """Kills, trips and orders as log records."""
    problems = []
    spans_of = {(span["trace"], span["attributes"]["deadstop.project"]) for span in found["spans"]}
    told = set()
    for line in found["logs"]:
        attributes = line["attributes"]
        if not line["body"] or line["time"] <= 0 or attributes.get("gen_ai.agent.name") != "looper":
            problems.append(f"a log record: {line}")
        wanted = ("WARN", 13) if line["event"] == "deadstop.kill" else ("INFO", 9)
        if (line["severity"], line["number"]) != wanted:
            problems.append(f"its severity: {line}")
        if line["event"] == "deadstop.order":
            if (attributes.get("deadstop.order"), attributes.get("deadstop.reason")) != ("kill", "enough"):
                problems.append(f"an order: {line}")
            continue
        told.add(attributes.get("deadstop.incident"))
        if attributes.get("deadstop.guard") != "loop" or attributes.get("gen_ai.conversation.id") != "s1":
            problems.append(f"a trip: {line}")
        if (line["trace"], "default") not in spans_of:
            problems.append(f"a trip outside of its trace: {line}")
    if told - {None} != incidents:
        problems.append(f"incidents in logs: {told}, not {incidents}")
    return problems


def metrics(found):
    """Sums grow, gauges do not, histograms add up."""
    problems = []
    by = {}
    for metric in found["metrics"]:
        by[metric["name"]] = metric
    for name, kind, unit in (("deadstop.calls", "sum", ""), ("deadstop.queue_depth", "gauge", ""),
                             ("deadstop.decision", "histogram", "s"), ("deadstop.upstream_duration", "histogram", "s")):
        metric = by.get(name)
        if not metric or (metric["kind"], metric["unit"]) != (kind, unit):
            problems.append(f"{name}: {metric}")
            continue
        for point in metric["points"]:
            if kind == "histogram":
                fine = (point["count"] == sum(point["counts"]) and len(point["counts"]) == len(point["bounds"]) + 1
                        and point["bounds"] == sorted(point["bounds"]))
                if not fine:
                    problems.append(f"{name}: {point}")
            if kind != "gauge" and not 0 < point["start"] < point["time"]:
                problems.append(f"{name}: from {point['start']} to {point['time']}")
        if kind == "sum" and (not metric["monotonic"] or metric["temporality"] != 2):
            problems.append(f"{name} does not say that it grows")
    upstream = by.get("deadstop.upstream_duration", {"points": []})
    # Of each bucket the last one is kept, so which it is depends on how fast the calls were.
    known = {span["trace"] for span in found["spans"]}
    if not any(trace in known for point in upstream["points"] for trace in point["exemplars"]):
        problems.append("no exemplar leads to a trace that was sent")
    return problems


def moods(server, collector):
    """Calls while the collector takes, hangs, refuses and is gone."""
    problems = []
    for mood in ("hangs", "refuses", "gone"):
        if mood == "gone":
            collector.close()
        collector.mood = mood
        before = time.monotonic()
        for number in range(40):
            status, _ = calls.chat(server, "gpt-4o-plain", mood, f"s{number}", f"question {number}")
            if status != 200:
                problems.append(f"a call while the collector {mood}: {status}")
        took = time.monotonic() - before
        print(f"collector: 40 calls while it {mood}: {took:.2f} s")
        # A call that waited for it would take ten seconds, and all of them 400.
        if took > 100:
            problems.append(f"calls waited while the collector {mood}: {took:.1f} s")
    return problems

"""Metrics in a real Prometheus: promtool reads them, the dashboard's and the rules' queries are run, exemplars lead to
traces. The server has keys, and Prometheus a key that reads metrics only, with the configuration in deploy/. Needs `prometheus` and `promtool` (Debian: apt-get install prometheus)."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import calls
from server import ROOT, Server

DASHBOARD = ROOT / "deploy/grafana/deadstop.json"
RULES = ROOT / "deploy/prometheus/alerts.yml"
CONFIG = ROOT / "deploy/prometheus/prometheus.yml"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def configured(folder, target, key):
    """The configuration in deploy/, for this server and its key, scraped every second."""
    text = CONFIG.read_text()
    for wanted, put in (("127.0.0.1:4141", target.removeprefix("http://")), ("15s", "1s"),
                        ("/etc/prometheus/deadstop.key", str(key)), ("- alerts.yml", f"- {RULES}")):
        if wanted not in text:
            raise AssertionError(f"{CONFIG.name} has no {wanted}")
        text = text.replace(wanted, put)
    file = folder / "prometheus.yml"
    file.write_text(text)
    return file


class Prometheus:
    """A Prometheus that scrapes one server every second."""

    def __init__(self, folder, target, key):
        self.url = f"http://127.0.0.1:{free_port()}"
        config = configured(folder, target, key)
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={self.url.removeprefix('http://')}",
                 "--enable-feature=exemplar-storage"], stdout=out, stderr=out)

    def ask(self, path, **query):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def wait(self, expr, seconds=40):
        """Until a query has a result."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.ask("query", query=expr).get("data", {}).get("result"):
                    return True
            except (OSError, ValueError):
                pass  # It is still starting.
            time.sleep(0.2)
        return False

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def queries():
    """Title and expression of each panel; the dashboard's variables are filled in."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$job", "deadstop").replace("$__rate_interval", "10s")
            yield panel["title"], expr


def check(binary, folder):
    for needed in ("prometheus", "promtool"):
        if not shutil.which(needed):
            return [f"there is no {needed}; apt-get install prometheus"]
    problems = []
    for what, file in (("rules", RULES), ("config", CONFIG)):
        more = ["--syntax-only"] if what == "config" else []
        checked = subprocess.run(["promtool", "check", what, *more, file], capture_output=True, text=True)
        if checked.returncode != 0:
            problems.append(checked.stdout + checked.stderr)
    upstream, config = calls.provider()
    server = Server(binary, folder / "server", config)
    prometheus = None
    try:
        server.make_key()
        key = folder / "deadstop.key"
        key.write_text(server.json("POST", "/api/keys", {"name": "prometheus", "role": "metrics"})["key"] + "\n")
        prometheus = Prometheus(folder, server.url, key)
        if not prometheus.wait('up{job="deadstop"} == 1'):
            return [f"Prometheus cannot scrape: {prometheus.log.read_text()[-2000:]}"]
        # A rate needs a series that is there before it grows.
        calls.chat(server, "gpt-4o-plain", "healthy", "first", "hello", stream=True)
        calls.chat(server, "gpt-4o-bad", "healthy", "bad", "hello")
        calls.until_stopped(server, "looper", "s0")
        prometheus.wait('deadstop_agent_verdicts_total{agent="looper"} > 0')
        prometheus.wait('deadstop_upstream_first_token_seconds_count > 0')
        parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        for n in range(6):
            calls.chat(server, "gpt-4o-plain", "healthy", f"h{n}", f"question {n}", headers=parent)
            calls.chat(server, "gpt-4o-plain", "healthy", f"i{n}", f"question {n}", stream=True, headers=parent)
        calls.chat(server, "gpt-4o-bad", "healthy", "bad")
        calls.until_stopped(server, "looper", "s1")
        if not prometheus.wait('sum(rate(deadstop_upstream_first_token_seconds_bucket[10s])) > 0'):
            problems.append("no time to first token")
        prometheus.wait('sum(rate(deadstop_agent_verdicts_total[10s])) > 0')

        for path, wanted in (("/metrics", 200), ("/api/status", 403), ("/api/whoami", 403)):
            status = server.ask("GET", path, headers={"x-deadstop-key": key.read_text().strip()})[0]
            if status != wanted:
                problems.append(f"{path} with the scraper's key: {status}, not {wanted}")
        text = server.ask("GET", "/metrics")[2].decode()
        linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        if linted.returncode != 0 or linted.stderr.strip():
            problems.append(f"promtool check metrics: {linted.stdout}{linted.stderr}")
        for needle in (r'deadstop_upstream_answers_total\{project="default",provider="local",model="gpt-4o-plain",status="2xx"\} 13',
                       r'deadstop_upstream_answers_total\{[^}]*model="gpt-4o-bad",status="4xx"\} 2',
                       r'deadstop_upstream_first_token_seconds_count\{[^}]*model="gpt-4o-plain"\} 7',
                       r'deadstop_agent_verdicts_total\{project="default",agent="looper",guard="loop",verdict="[a-z]+"\} [1-9]'):
            if not re.search(needle, text):
                problems.append(f"no {needle}")
        _, headers, _ = server.ask("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
        if not headers.get("content-type", "").startswith("application/openmetrics-text"):
            problems.append("OpenMetrics was not given")

        names = set(re.findall(r"^([a-z_]+)", text, re.M))
        empty = []
        for title, expr in queries():
            answer = prometheus.ask("query", query=expr)
            if answer["status"] != "success":
                problems.append(f"{title}: {expr}: {answer}")
            elif not answer["data"]["result"]:
                empty.append(title)
            unknown = set(re.findall(r"\bdeadstop_[a-z_]+", expr)) - names
            if unknown:
                problems.append(f"{title}: there is no {unknown}")
        if empty:
            problems.append(f"panels without data: {empty}")
        rules = prometheus.ask("rules")["data"]["groups"][0]["rules"]
        for rule in rules:
            if rule["health"] != "ok":
                problems.append(f"{rule['name']}: {rule.get('lastError', rule['health'])}")
            # Redis is there in a fleet only, windows where a provider reports them.
            unknown = set(re.findall(r"\bdeadstop_[a-z_]+", rule["query"])) - names
            unknown -= {"deadstop_redis_up", "deadstop_quota_used_ratio"}
            if unknown:
                problems.append(f"{rule['name']}: there is no {unknown}")
        print(f"prometheus: {len(list(queries()))} queries, {len(rules)} rules, {len(names)} names")
        now = time.time()
        found = prometheus.ask("query_exemplars", query="deadstop_upstream_duration_seconds_bucket",
                               start=now - 300, end=now + 60)
        traces = {one["labels"]["trace_id"] for series in found["data"] for one in series["exemplars"]}
        if TRACE not in traces:
            problems.append(f"no exemplar has the caller's trace: {traces}")
    finally:
        if prometheus:
            prometheus.stop()
        server.stop()
    return problems

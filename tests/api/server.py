"""The real program on a free port, with a data folder of its own, and what it is asked."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Nothing of the machine's own settings: no proxies, no keys, no configuration.
# What orders bring that loosen control, while there are no keys.
OPERATOR = "the-operator-of-these-tests"
OWN = re.compile(r"proxy|^(OPENAI|ANTHROPIC|GOOGLE|GEMINI|DEADSTOP)_", re.I)


def program():
    """DEADSTOP_BIN, or what was built last."""
    named = os.environ.get("DEADSTOP_BIN")
    for path in [named] if named else [ROOT / "target/release/deadstop", ROOT / "target/debug/deadstop"]:
        if pathlib.Path(path).is_file():
            return str(pathlib.Path(path).resolve())
    sys.exit("api: there is no program\nhint: make build, or set DEADSTOP_BIN")


class Server:
    """`deadstop serve`."""

    def __init__(self, binary, folder, config="", log="warn", policy="balanced",
                 listen="127.0.0.1:0", more=()):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.binary, self.data, self.log, self.key = binary, folder / "data", folder / "log", None
        (folder / "deadstop.toml").write_text(config)
        # Without a name to listen on, the configuration says it.
        arguments = ["serve", *(["--listen", listen] if listen else []), "--data", self.data,
                     "--config", folder / "deadstop.toml", "--policy", policy, *more]
        self.environment = {name: value for name, value in os.environ.items() if not OWN.search(name)}
        self.environment |= {"DEADSTOP_LOG": log, "RUST_LOG": log, "RUST_BACKTRACE": "1",
                             "DEADSTOP_OPERATOR_TOKEN": OPERATOR}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen([binary, *map(str, arguments)], stdout=out, stderr=out,
                                            cwd=folder, env=self.environment)
        until = time.monotonic() + 20
        while not (found := re.search(r'listens on (http://[^\s"]+)', self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                sys.exit(f"api: the server did not start\n{self.log.read_text()}")
            time.sleep(0.02)
        self.url = found[1]

    def ask(self, method, path, body=None, headers=None, seconds=30):
        """A request and its answer: status, headers, bytes."""
        headers = dict(headers or {})
        headers.setdefault("x-deadstop-operator", OPERATOR)
        if self.key:
            headers.setdefault("x-deadstop-key", self.key)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("content-type", "application/json")
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, method, path, body=None, headers=None):
        """The same for what must work and answers JSON."""
        status, _, answer = self.ask(method, path, body, headers)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status} {answer[:2000]!r}")
        return json.loads(answer) if answer else None

    def make_key(self):
        """From here on keys are wanted, and this one is brought."""
        self.key = self.json("POST", "/api/keys", {"name": "root", "role": "admin"})["key"]

    def stop(self):
        """True if it stops when it is asked to."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        return True

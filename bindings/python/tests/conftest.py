"""A stand-in for the providers, and a real server, for all tests."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = os.environ.get("DEADSTOP_BIN") or str(ROOT / "target/debug/deadstop")
sys.path.insert(0, str(ROOT / "tests" / "clients"))

import standin  # noqa: E402

# What is to be cut must not end by itself before, however slow the machine is.
standin.LONGEST = 60

for name in list(os.environ):
    if re.search(r"proxy|^(OPENAI|ANTHROPIC|DEADSTOP)_", name, re.I) and name != "DEADSTOP_BIN":
        del os.environ[name]
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
# Kills that a server has not heard of are kept here.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="deadstop-state-")
# A server on a machine with too much to do is slow, not away.
os.environ["DEADSTOP_PATIENCE"] = "60"


@pytest.fixture(scope="session")
def provider():
    """The URL of a provider."""
    server = standin.start()
    server.handle_error = lambda *_: None  # clients that leave are what is tested
    return server.url


@pytest.fixture
def openai_client(provider):
    import openai

    return openai.OpenAI(api_key="k", base_url=provider + "/v1", max_retries=2)


@pytest.fixture
def async_client(provider):
    import openai

    return openai.AsyncOpenAI(api_key="k", base_url=provider + "/v1", max_retries=2)


@pytest.fixture
def anthropic_client(provider):
    import anthropic

    return anthropic.Anthropic(api_key="k", base_url=provider, max_retries=2)


#: What orders bring that loosen control.
OPERATOR = "the-operator-of-these-tests"


class Server:
    """`deadstop serve` on a free port."""

    def __init__(self, folder: pathlib.Path, policy: str, port: int = 0) -> None:
        self.folder, self.policy = folder, policy
        (folder / "policy.toml").write_text(policy)
        self.log = folder / "log"
        command = [BINARY, "serve", "--listen", f"127.0.0.1:{port}", "--data", folder / "data",
                   "--policy", folder / "policy.toml"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log,
                                            env=os.environ | {"DEADSTOP_OPERATOR_TOKEN": OPERATOR})
        until = time.monotonic() + 60
        while not (found := re.search(r"listens on (http://\S+)", self.log.read_text())):
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)
        self.url = found[1]

    def ask(self, method: str, path: str, body: object = None, headers: dict | None = None) -> dict:
        import httpx

        headers = {"x-deadstop-operator": OPERATOR} | (headers or {})
        got = httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)
        return got.json()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def serve(tmp_path):
    """Starts servers, and stops them."""
    started: list[Server] = []

    def start(policy: str = "", port: int = 0) -> Server:
        server = Server(tmp_path, policy, port)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


def eventually(check, seconds: float = 60.0) -> None:
    """Waits until something is so."""
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)


def ask(client, model: str = "gpt-4o-plain", **more):
    """Asks a client of OpenAI something."""
    said = [{"role": "user", "content": "Continue processing"}]
    return client.chat.completions.create(model=model, messages=said, **more)

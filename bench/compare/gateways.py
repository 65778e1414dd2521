"""Scenes behind three gateways, before the same stand-in provider. `bench/compare/run gateways` calls it.

A scene is played by a plain HTTP client. It ends at the first refusal, as an agent's framework would end.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import secrets
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import flaky

SECONDS = 120
TURNS, BUDGET_USD, CALL_USD = 30, 20, 4
#: Dollars per million tokens, and the tokens of the costly model's answers.
PRICE, TOKENS = 10, 400_000


class Gateway:
    """A process behind a free port."""

    def __init__(self, name, command, address, headers=None, **environment):
        self.name, self.address, self.headers = name, address, headers or {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="compare-"))
        self.log = (self.folder / "log").open("wb")
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | environment
        self.process = subprocess.Popen([str(part) for part in command], cwd=self.folder, env=environment,
                                        stdout=self.log, stderr=self.log, start_new_session=True)

    def ready(self, port):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{self.name}: {(self.folder / 'log').read_text()[-2000:]}")

    def ask(self, agent, model, messages):
        """One model call, with the largest answer that it may have: its status and its answer."""
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
        body = json.dumps({"model": model, "messages": messages, "tools": tools, "max_tokens": TOKENS}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {agent}", **self.headers}
        request = urllib.request.Request(self.address.format(agent=agent) + "/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def deadstop(binary, provider, reservation):
    folder, port = pathlib.Path(tempfile.mkdtemp(prefix="compare-")), free_port()
    (folder / "policy.toml").write_text(f"[agent.budget]\nmax_cost_usd = {BUDGET_USD}\nper = 'day'\nreservation = '{reservation}'\n")
    prices = ", ".join(f'"gpt-4o-{kind}" = [0, {PRICE}]' for kind in ("deaf", "costly", "plain"))
    (folder / "deadstop.toml").write_text(f"policy = '{folder}/policy.toml'\n[providers.openai]\nbase_url = '{provider}'\n"
                                          f"prices = {{ models = {{ {prices} }} }}\n")
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", folder / "data", "--config", folder / "deadstop.toml"]
    return Gateway(f"Deadstop, `reservation = \"{reservation}\"`", command, f"http://127.0.0.1:{port}/agent/{{agent}}/openai/v1").ready(port)


def litellm(others, provider):
    folder, port = pathlib.Path(tempfile.mkdtemp(prefix="compare-")), free_port()
    # One deployment for each agent, with a budget of its own: without a database there are no budgets for keys.
    models = [{"model_name": f"{agent}/{model}",
               "litellm_params": {"model": f"openai/{model}", "api_base": f"{provider}/v1", "api_key": agent,
                                  "input_cost_per_token": 0, "output_cost_per_token": PRICE / 1e6,
                                  "max_budget": BUDGET_USD, "budget_duration": "1d"}}
              for agent, model in (("loop", "gpt-4o-deaf"), ("one", "gpt-4o-costly"), ("many", "gpt-4o-costly"), ("fails", "gpt-4o-plain"))]
    (folder / "config.yaml").write_text(json.dumps({"model_list": models}))
    command = [others / "others/bin/litellm", "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", port, "--telemetry", "False"]
    key = "sk-" + secrets.token_hex(32)
    found = Gateway("LiteLLM", command, f"http://127.0.0.1:{port}/v1", {"authorization": f"Bearer {key}"},
                    LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MASTER_KEY=key).ready(port)
    plain = found.ask
    found.ask = lambda agent, model, messages: plain(agent, f"{agent}/{model}", messages)
    return found


def portkey(others, provider):
    port = free_port()
    settings = {"provider": "openai", "custom_host": f"{provider}/v1", "retry": {"attempts": 3}}
    command = ["node", others / "node_modules/@portkey-ai/gateway/build/start-server.js", "--headless", f"--port={port}"]
    return Gateway("Portkey", command, f"http://127.0.0.1:{port}/v1", {"x-portkey-config": json.dumps(settings)}).ready(port)


def looping(gateway):
    """The model asks for the same tool with the same arguments, and gets the same result, until it is refused."""
    messages = [{"role": "user", "content": "Tell me when the sun shines in Paris."}]
    for turn in range(TURNS):
        status, answer = gateway.ask("loop", "gpt-4o-deaf", messages)
        if status != 200:
            return f"refused at turn {turn + 1} ({status})"
        message = answer["choices"][0]["message"]
        messages.append({name: message.get(name) for name in ("role", "content", "tool_calls")})
        if not message.get("tool_calls"):
            return f"tool withheld at turn {turn + 1}"
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "the same as before"} for call in message["tool_calls"]]
    return f"all {TURNS} turns pass"


def spending(gateway):
    """Calls of $4 under a budget of $20, each after the last one."""
    for call in range(TURNS // 2):
        status, _ = gateway.ask("one", "gpt-4o-costly", [{"role": "user", "content": f"Write chapter {words(call)}."}])
        if status != 200:
            return f"${call * CALL_USD} ({status})"
    return f"${TURNS // 2 * CALL_USD}, no end"


def rushing(gateway):
    """The same, thirty at once."""
    with concurrent.futures.ThreadPoolExecutor(TURNS) as pool:
        asked = [[{"role": "user", "content": f"Write chapter {words(call)}."}] for call in range(TURNS)]
        answers = list(pool.map(lambda messages: gateway.ask("many", "gpt-4o-costly", messages)[0], asked))
    return f"${answers.count(200) * CALL_USD}"


def failing(gateway, provider):
    """A provider that fails at every other call, and a client that does not try again."""
    calls, well = 10, 0
    for call in range(calls):
        provider.plan("fails", [503])
        status, _ = gateway.ask("fails", "gpt-4o-plain", [{"role": "user", "content": f"Chapter {words(call)}, please."}])
        well += status == 200
    provider.plan("fails", [])
    return f"{well} of {calls} answered"


def words(number):
    """A number in letters, so that two requests do not differ in a digit only."""
    return " ".join("zero one two three four five six seven eight nine".split()[int(digit)] for digit in str(number))


def rows(binary, others):
    provider = flaky.start()
    address = re.sub(r"/+$", "", provider.url)
    yield ["", f"the same tool call, {TURNS} times", f"spent of ${BUDGET_USD}, one call after the other",
           f"spent of ${BUDGET_USD}, {TURNS} calls at once", "provider fails once before each answer"]
    for start in (lambda: deadstop(binary, address, "expected"), lambda: deadstop(binary, address, "ceiling"), lambda: litellm(others, address), lambda: portkey(others, address)):
        gateway = start()
        try:
            yield [gateway.name, looping(gateway), spending(gateway), rushing(gateway), failing(gateway, provider)]
        finally:
            gateway.close()

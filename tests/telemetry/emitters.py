"""Real emitters, whose agents speak to their provider directly: Deadstop sees their telemetry only. Each agent keeps making
one tool call. It must be charged to its session, and its next call must be refused at another door: at the gateway, or by
the hook of Claude Code.

The AI SDK in Node, in versions 7 and 5; LangChain with OpenInference and with OpenLLMetry; Claude Code.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess

import calls
import install
from server import ROOT, Server

HERE = pathlib.Path(__file__).resolve().parent / "emitters"
SECONDS, STEPS = 120, 12
AGENT = "planner"
#: Each with the version or the instrumentation, and the protocol that it sends by.
NODE = (("v5", "http/protobuf"), ("v7", "http/json"))
PYTHON = ("openinference", "openllmetry")
#: Nothing of the machine's own settings reaches an agent.
FOREIGN = re.compile(r"proxy|^(OPENAI|ANTHROPIC|CLAUDE|GOOGLE|GEMINI|DEADSTOP|OTEL|LANG(CHAIN|SMITH))|^CI$", re.I)


def environment(server, protocol, **more):
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
    return kept | {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                   "OTEL_SERVICE_NAME": "shop", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
                   "NO_COLOR": "1", "TERM": "dumb"} | more


def ran(command, **options):
    """What went wrong with a command; None if it ended well."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, **options)
    except subprocess.TimeoutExpired:
        return f"it took longer than {SECONDS} s"
    return None if done.returncode == 0 else f"it ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"


def session(server, agent, name):
    """A session as /api/status has it, or None."""
    scopes = server.json("GET", "/api/status?limit=500")["scopes"]
    found = [scope for scope in scopes if scope["kind"] == "session" and (scope["agent"], scope["name"]) == (agent, name)]
    return found[0] if len(found) == 1 else None


def judged(server, agent, name, tool):
    """The incident of a loop that telemetry alone has shown, or what is wrong with it."""
    found = [one for one in server.json("GET", "/api/incidents")["items"] if (one["agent"], one["session"]) == (agent, name)]
    if not found:
        return f"no incident of {agent}/{name}"
    explained = found[0]["explain"]
    return None if tool in explained and "observed through telemetry" in explained else f"it says: {explained}"


def refused(server, name):
    """What is wrong with the next call of the agent, at the gateway."""
    status, answer = calls.chat(server, "gpt-4o-plain", AGENT, name)
    return None if status == 403 and b"get_weather" in answer else f"the next call at the gateway: {status} {answer[:500]!r}"


def check(binary, folder):
    problems = []
    upstream, config = calls.provider()
    server = Server(binary, folder / "server", config, policy="strict")
    try:
        emitters = [(f"AI SDK {version}", ["node", "ai.mjs", version], protocol, "ai") for version, protocol in NODE]
        emitters += [(f"LangChain with {name}", ["venv/bin/python", HERE / "chain.py", name], "http/protobuf", "langchain")
                     for name in PYTHON]
        for name, command, protocol, home in emitters:
            own = "s-" + re.sub(r"\W+", "-", name.lower())
            where = install.emitters(home)
            wrong = ran([*command, upstream.url, own, str(STEPS)], cwd=where, env=environment(server, protocol))
            seen = session(server, AGENT, own)
            if not wrong and not seen:
                wrong = f"no session {own}: {server.json('GET', '/api/status?limit=500')['scopes']}"
            if not wrong and (seen["model_calls"], seen["steps"]) != (STEPS, STEPS):
                wrong = f"{seen['model_calls']} model calls and {seen['steps']} tool calls, not {STEPS} of each"
            # What the stand-in says that each answer took.
            if not wrong and (seen["input_tokens"], seen["output_tokens"]) != (11 * STEPS, 23 * STEPS):
                wrong = f"{seen['input_tokens']} and {seen['output_tokens']} tokens"
            wrong = wrong or judged(server, AGENT, own, "get_weather") or refused(server, own)
            print(f"emitters: {name}, {protocol}: {'FAILED' if wrong else 'ok'}", flush=True)
            problems += [f"{name}: {wrong}"] if wrong else []
    finally:
        server.stop()
    return problems


def hosts_provider():
    """The stand-in for coding agents; `provider` is another module here."""
    spec = importlib.util.spec_from_file_location("hosts_provider", ROOT / "tests/hosts/provider.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def claude(binary, folder):
    """Claude Code: first with telemetry only, then with our hook in the same conversation."""
    program, why = install.claude()
    if not program:
        print(f"claude: SKIPPED: {why}", flush=True)
        return []
    provider = hosts_provider()
    home, project, made = (folder / name for name in ("home", "project", "made"))
    for each in (home, project, made):
        each.mkdir()
    subprocess.run(["git", "init", "-q", project], check=True)
    (home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True}))
    model = provider.start(made, STEPS)
    model.same = "ls /a-folder-that-is-not-there"
    server = Server(binary, folder / "server", "", policy="strict")
    own = environment(server, "http/json", HOME=str(home), ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="sk-ant-stand-in",
                      DISABLE_AUTOUPDATER="1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", IS_SANDBOX="1",
                      DEADSTOP_SERVER=server.url)
    del own["OTEL_SERVICE_NAME"]
    telling = {"CLAUDE_CODE_ENABLE_TELEMETRY": "1", "OTEL_LOGS_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp",
               "OTEL_LOGS_EXPORT_INTERVAL": "500", "OTEL_LOG_TOOL_DETAILS": "1"}
    prompt = [program, "-p", "look into the folder", "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5"]
    try:
        wrong = ran(prompt, cwd=project, env=own | telling)
        scopes = [one for one in server.json("GET", "/api/status?limit=500")["scopes"]
                  if one["kind"] == "session" and one["agent"] == "claude-code"]
        if wrong or len(scopes) != 1:
            return [wrong or f"not one session of claude-code: {scopes}"]
        seen = scopes[0]
        # Each round asks for the command, and the last answer says that all is done.
        if (seen["model_calls"], seen["steps"]) != (STEPS + 1, STEPS) or not seen["cost_usd"]:
            return [f"{seen['model_calls']} model calls and {seen['steps']} tool calls for ${seen['cost_usd']}"]
        wrong = judged(server, "claude-code", seen["name"], "Bash")
        wrong = wrong or ran([binary, "install", "claude-code", "--yes"], cwd=project, env=own)
        before = len(model.asked)
        done = subprocess.run([*prompt, "--continue"], cwd=project, env=own, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=SECONDS)
        said = done.stdout + done.stderr
        if not wrong and ("Deadstop stopped" not in said or len(model.asked) != before):
            wrong = f"the hook let it go on: {len(model.asked) - before} model calls more; {said[-1500:]}"
        return [wrong] if wrong else []
    finally:
        server.stop()
        model.shutdown()

"""Coding agents as the tests run them: where each comes from, how it finds its provider, and how it is asked.

An agent takes its provider's address from the environment, as a user would set it, so that the same command runs
alone, with hooks, and under `deadstop run`.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INSTALL_SECONDS = 600

#: Variables that would lead an agent elsewhere, or tell it that it runs in CI.
FOREIGN = re.compile(r"proxy|^(OPENAI|ANTHROPIC|CLAUDE|CODEX|GOOGLE|GEMINI|COPILOT|GITHUB|GH|QWEN|CLINE|CONTINUE|KILO"
                     r"|OPENCODE|DEADSTOP|XDG)|^CI$", re.I)


class Host:
    #: Its package at npm and its program.
    package = program = ""
    #: Its name in the tables, and for `deadstop install` if it has hooks.
    name, hooks = "", None
    #: What it calls its shell.
    tool = ""
    #: Whether it calls a hook at the end of a session that was started with a prompt.
    says_its_end = True
    #: The provider whose API it speaks.
    provider = "openai"
    #: What its model keeps asking for.
    loop = "cat build.log"

    def prepare(self, stage):
        """Writes what a user would have set up before."""

    def environment(self, url):
        return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "stand-in"}

    def command(self, text, again=False):
        """The words that ask it; `again` takes up its last session."""
        raise NotImplementedError


class ClaudeCode(Host):
    package, program = "@anthropic-ai/claude-code", "claude"
    name, hooks, tool, provider = "Claude Code", "claude-code", "Bash", "anthropic"

    def prepare(self, stage):
        (stage.home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True}))

    def environment(self, url):
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-stand-in",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}

    def command(self, text, again=False):
        command = ["claude", "-p", text, "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5"]
        return command + (["--continue"] if again else [])


class Codex(Host):
    package, program = "@openai/codex", "codex"
    # A turn goes on when a tool is denied; it ends at the next prompt.
    name, hooks, tool = "Codex", "codex", "Bash"
    says_its_end = False

    def prepare(self, stage):
        folder = stage.home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text('model = "gpt-5"\nmodel_provider = "own"\n')

    def command(self, text, again=False):
        # Codex does not read OPENAI_BASE_URL; the shell hands over what is set, as docs/hosts/codex.md says.
        line = ('exec codex exec --dangerously-bypass-approvals-and-sandbox --dangerously-bypass-hook-trust '
                '--skip-git-repo-check -c model_providers.own.name=own -c model_providers.own.wire_api=responses '
                '-c model_providers.own.env_key=OPENAI_API_KEY '
                '-c model_providers.own.base_url="\\"$OPENAI_BASE_URL\\"" "$@"')
        return ["sh", "-c", line, "sh", *(["resume", "--last"] if again else []), text]


class Gemini(Host):
    package, program = "@google/gemini-cli", "gemini"
    name, hooks, tool, provider = "Gemini CLI", "gemini", "run_shell_command", "gemini"
    # It notices by itself when a call is repeated to the letter.
    loop = "cat build-{number}.log"

    def prepare(self, stage):
        settings(stage.home / ".gemini", {"security": {"auth": {"selectedType": "gemini-api-key"}},
                                          "privacy": {"usageStatisticsEnabled": False},
                                          "general": {"enableAutoUpdate": False}})

    def environment(self, url):
        return {"GEMINI_API_KEY": "stand-in", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def command(self, text, again=False):
        command = ["gemini", "--yolo", "--model", "gemini-2.5-flash", "--prompt", text]
        return command + (["--resume", "latest"] if again else [])


class Qwen(Host):
    package, program = "@qwen-code/qwen-code", "qwen"
    name, hooks, tool = "Qwen Code", "qwen", "run_shell_command"
    # Only where its user leaves it: not with `--prompt`.
    says_its_end = False

    def prepare(self, stage):
        settings(stage.home / ".qwen", {"privacy": {"usageStatisticsEnabled": False},
                                        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True}})

    def environment(self, url):
        return super().environment(url) | {"OPENAI_MODEL": "gpt-4o"}

    def command(self, text, again=False):
        command = ["qwen", "--yolo", "--auth-type", "openai", "--prompt", text]
        return command + (["--continue"] if again else [])


class OpenCode(Host):
    package, program = "opencode-ai", "opencode"
    name, hooks, provider = "OpenCode", "opencode", "anthropic"

    def prepare(self, stage):
        models = {"model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5"}
        options = {"baseURL": "{env:ANTHROPIC_BASE_URL}", "apiKey": "stand-in"}
        (stage.project / "opencode.json").write_text(json.dumps(models | {
            "$schema": "https://opencode.ai/config.json", "permission": {"*": "allow"}, "autoupdate": False,
            "share": "disabled", "provider": {"anthropic": {"options": options}}}))

    def environment(self, url):
        # Without /v1, as `deadstop run` and the README export it.
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "stand-in", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def command(self, text, again=False):
        return ["opencode", "run", *(["--continue"] if again else []), text]


class Copilot(Host):
    package, program = "@github/copilot", "copilot"
    name, hooks, tool = "Copilot CLI", "copilot", "bash"

    def environment(self, url):
        return {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": "stand-in",
                "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_MODEL": "gpt-4o", "COPILOT_AUTO_UPDATE": "false"}

    def command(self, text, again=False):
        command = ["copilot", "-p", text, "--allow-all-tools", "--no-color"]
        return command + (["--continue"] if again else [])


class Cline(Host):
    package, program, name = "cline", "cline", "Cline"

    def command(self, text, again=False):
        # Cline keeps the address in a file of its own.
        line = ('cline auth -p openai-compatible -k stand-in -m gpt-4o -b "$OPENAI_BASE_URL" >/dev/null && '
                'exec cline -P openai-compatible "$@"')
        return ["sh", "-c", line, "sh", text]


class Pi(Host):
    package, program, name = "@mariozechner/pi-coding-agent", "pi", "Pi"

    def prepare(self, stage):
        model = {"id": "gpt-4o", "name": "gpt-4o", "reasoning": False, "input": ["text"], "contextWindow": 128000,
                 "maxTokens": 4096, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
        own = {"baseUrl": "@URL@", "api": "openai-completions", "apiKey": "OPENAI_API_KEY", "models": [model]}
        settings(stage.home / ".pi/agent", {"providers": {"own": own}}, "models.json")

    def command(self, text, again=False):
        line = 'sed -i "s|@URL@|$OPENAI_BASE_URL|" "$HOME/.pi/agent/models.json" && exec pi "$@"'
        return ["sh", "-c", line, "sh", "-p", text, "--provider", "own", "--model", "gpt-4o"]


class Continue(Host):
    package, program, name = "@continuedev/cli", "cn", "Continue"

    def prepare(self, stage):
        (stage.project / "own.yaml").write_text(
            "name: own\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: own\n    provider: openai\n    model: gpt-4o\n"
            "    apiBase: '@URL@'\n    apiKey: stand-in\n    roles: [chat]\n    capabilities: [tool_use]\n")

    def command(self, text, again=False):
        line = 'sed -i "s|@URL@|$OPENAI_BASE_URL|" own.yaml && exec cn "$@"'
        return ["sh", "-c", line, "sh", "-p", text, "--auto", "--config", "own.yaml"]


HOSTS = [ClaudeCode(), Codex(), Gemini(), Qwen(), OpenCode(), Copilot(), Cline(), Pi(), Continue()]


def settings(folder, values, name="settings.json"):
    """Writes values into a JSON file, beside those that are there."""
    file = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    there = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(there | values, indent=2))


def environment(stage):
    """The environment of everything that a stage starts."""
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
    return kept | {"HOME": str(stage.home), "PWD": str(stage.project), "DEADSTOP_SERVER": "none", "NO_COLOR": "1",
                   "TERM": "dumb", "PATH": f"{stage.bin}:{os.environ['PATH']}"}


def installed():
    """The folder with the agents' programs, or why there is none. DEADSTOP_HOSTS names a folder that has them;
    DEADSTOP_NEWER takes the newest versions instead of the pinned ones."""
    if named := os.environ.get("DEADSTOP_HOSTS"):
        return pathlib.Path(named), None
    wanted = (HERE / "package.json").read_text()
    newer = bool(os.environ.get("DEADSTOP_NEWER"))
    home = ROOT / "target" / ("hosts-newer" if newer else "hosts")
    bin, stamp = home / "node_modules" / ".bin", home / "installed"
    if newer:
        package = json.loads(wanted)
        package["dependencies"] = dict.fromkeys(package["dependencies"], "latest")
        wanted = json.dumps(package, indent=2)
    elif stamp.is_file() and stamp.read_text() == wanted:
        return bin, None
    if not shutil.which("npm"):
        return bin, "there is no npm"
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text(wanted)
    try:
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save"], cwd=home, check=True,
                       timeout=INSTALL_SECONDS, capture_output=True)
    except subprocess.CalledProcessError as error:
        return bin, f"npm could not install: {error.stderr.decode(errors='replace').strip().splitlines()[-1:]}"
    except subprocess.TimeoutExpired:
        return bin, f"npm took longer than {INSTALL_SECONDS} s"
    stamp.write_text(wanted)
    return bin, None


def version(host, bin, problem):
    """The version that a host says it is, or why there is none."""
    try:
        says = subprocess.run([bin / host.program, "--version"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, problem or str(error)
    found = re.search(r"\d+\.\d+\.\d+", says.stdout + says.stderr)
    return (found[0], None) if found else (None, problem or "it says no version")

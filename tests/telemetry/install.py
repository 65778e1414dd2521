"""What the checks need from PyPI and npm, installed once into target/telemetry."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from server import ROOT

HERE = pathlib.Path(__file__).resolve().parent
HOME = ROOT / "target" / "telemetry"
SECONDS = 240
NPM = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]


def once(name, wanted, commands):
    """Runs commands in a folder of target/telemetry, unless they were run for the same text before."""
    folder = HOME / name
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        ran = subprocess.run(command, cwd=folder, timeout=SECONDS, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"telemetry: cannot install\n{ran.stderr[-2000:]}\nhint: it needs pip, npm and their registries")
    stamp.write_text(wanted)
    return folder


def python():
    """A Python with the official protobuf classes."""
    wanted = (HERE / "requirements.txt").read_text()
    folder = once("python", wanted, [
        [sys.executable, "-m", "venv", "venv"],
        ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", HERE / "requirements.txt"]])
    return folder / "venv/bin/python"


def emitters(name):
    """A folder with what an emitter needs: `ai` from npm, `langchain` from PyPI."""
    own = HERE / "emitters"
    if name == "langchain":
        wanted = own / "requirements.txt"
        return once(name, wanted.read_text(), [
            [sys.executable, "-m", "venv", "venv"],
            ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted]])
    folder = HOME / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "ai.mjs"):
        shutil.copy(own / file, folder)
    return once(name, (own / "package.json").read_text(), [NPM])


def mcp():
    """A Python with the official SDK of MCP, which has spans of its own, and with an exporter for them."""
    wanted = HERE / "mcp/requirements.txt"
    folder = once("mcp", wanted.read_text(), [
        [sys.executable, "-m", "venv", "venv"],
        ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted]])
    return folder / "venv/bin/python"


def claude():
    """Claude Code, in the version that `tests/hosts` takes, and why there is none."""
    named = os.environ.get("DEADSTOP_HOSTS", ROOT / "target/hosts/node_modules/.bin")
    if (there := pathlib.Path(named) / "claude").exists():
        return str(there.resolve()), None
    if not shutil.which("npm"):
        return None, "there is no npm"
    name = "@anthropic-ai/claude-code"
    version = json.loads((ROOT / "tests/hosts/package.json").read_text())["dependencies"][name]
    wanted = json.dumps({"name": "claude", "private": True, "dependencies": {name: version}})
    folder = HOME / "claude"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(wanted)
    once("claude", wanted, [["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]])
    return str(folder / "node_modules/.bin/claude"), None


def node():
    """A folder with the OpenID provider."""
    folder = HOME / "node"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "package.json", folder)
    once("node", (HERE / "package.json").read_text(), [NPM])
    shutil.copy(HERE / "provider.mjs", folder)
    return folder

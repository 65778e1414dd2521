"""What the checks need from PyPI and npm, installed once into target/telemetry."""

import pathlib
import shutil
import subprocess
import sys

from server import ROOT

HERE = pathlib.Path(__file__).resolve().parent
HOME = ROOT / "target" / "telemetry"
SECONDS = 240


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


def node():
    """A folder with the OpenID provider."""
    folder = HOME / "node"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "package.json", folder)
    once("node", (HERE / "package.json").read_text(),
         [["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]])
    shutil.copy(HERE / "provider.mjs", folder)
    return folder

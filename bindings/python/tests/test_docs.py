"""The programs of the documents run as they stand: all blocks of a page, in order, against a stand-in provider."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "docs"))

import blocks  # noqa: E402

#: CrewAI has an environment of its own: see `check`.
HOW = "crewai" if importlib.util.find_spec("crewai") else ""
#: The first blocks of the READMEs end in a kill, and are tried in test_readme.py.
PAGES = [page for page in blocks.pages() if page.startswith("docs/") and blocks.program(page, "python", HOW)]


def test_there_are_pages():
    assert PAGES, "no page has a program in Python"


@pytest.mark.parametrize("page", PAGES)
def test_a_page(page, provider, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", provider + "/v1")
    for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code = compile(blocks.program(page, "python", HOW), str(pathlib.Path(ROOT, page)), "exec")
    names: dict = {"__name__": "page"}
    exec(code, names)
    session = names["session"]
    assert session.get_state().model_calls, "no model call went through the session"
    session.restore()

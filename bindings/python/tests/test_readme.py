"""The README's first lines work."""

from __future__ import annotations

import re

import deadstop
import pytest

from conftest import ROOT


@pytest.mark.parametrize("file", ["bindings/python/README.md", "README.md"])
def test_five_lines(file, provider, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", provider + "/v1")
    text = (ROOT / file).read_text()
    [code] = re.findall(r"```python\n(import deadstop, openai\n.*?)```", text, re.S)
    assert len(code.strip().splitlines()) == 5
    names: dict = {}
    exec(code, names)
    assert names["answer"].choices[0].message.content
    with pytest.raises(deadstop.DeadstopKilled, match="that is enough"):
        names["session"].client.models.list()
    names["session"].restore()

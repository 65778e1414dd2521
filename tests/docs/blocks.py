"""Code blocks of the documents: where they are, and who runs them.

The first word behind the fence is the language; the rest says how the block is checked:

    ```console                    each `$ ` line is run in a sandbox with a server; lines without `$` are what
                                  it prints (numbers may differ, `…` stands for anything)
    ```console exit 1             the last command ends with this code
    ```toml policy                a policy: `deadstop policy check`
    ```toml config                a deadstop.toml: a server starts with it
    ```json                       is valid JSON
    ```python                     run by the tests of the wheel; all blocks of a page, in order
    ```python crewai              the same, where CrewAI is installed
    ```python gateway             run against a gateway, with the frameworks of tests/docs/requirements.txt
    ```ts, ```ts gateway          the same for Node
    ```text                       no code: a drawing, or what a program says
    ```LANGUAGE not run: REASON   not checked, for this reason
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^([ ]*)(```+)([^\n`]*)\n(.*?)^\1\2[ ]*$", re.M | re.S)
#: How a block of each language may be checked; nothing behind the language is "".
KNOWN = {
    "console": {""}, "toml": {"policy", "config"}, "json": {""}, "text": {""},
    "python": {"", "crewai", "gateway"}, "ts": {"", "gateway"},
}


@dataclasses.dataclass(frozen=True)
class Block:
    file: str
    line: int
    language: str
    how: str
    why_not: str
    exit: int
    text: str
    indented: bool = False

    @property
    def where(self):
        return f"{self.file}:{self.line}"


def pages():
    """Every document that people read, as paths from the root."""
    found = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("bindings/*/README.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page):
    return read(page, (ROOT / page).read_text(encoding="utf-8"))


def read(page, text):
    """The blocks of a page's text."""
    for found in FENCE.finditer(text):
        indent, _, info, body = found.groups()
        language, _, how = info.strip().partition(" ")
        _, _, why_not = how.partition("not run:") if how.startswith("not run:") else ("", "", "")
        code = re.fullmatch(r"exit (\d+)", how)
        if indent:
            body = re.sub(rf"^{indent}", "", body, flags=re.M)
        line = text.count("\n", 0, found.start()) + 1
        how = "" if code or why_not else how
        yield Block(page, line, language, how, why_not.strip(), int(code[1]) if code else 0, body, bool(indent))


def problems(block):
    """What is wrong with the way in which a block is marked."""
    if block.why_not:
        return [] if len(block.why_not.split()) > 2 else [f"{block.where}: say why it is not run"]
    if block.language not in KNOWN:
        return [f"{block.where}: `{block.language}` is not run by any test: add `not run: REASON`"]
    if block.how not in KNOWN[block.language]:
        known = ", ".join(sorted(how or "nothing" for how in KNOWN[block.language]))
        return [f"{block.where}: `{block.how}` behind {block.language}: it may be {known}, or `not run: REASON`"]
    commands = re.search(r"^\s*\$ ", block.text, re.M)
    if block.language == "console" and not commands:
        return [f"{block.where}: no line begins with `$ `, so nothing is run"]
    if block.language == "text" and commands:
        return [f"{block.where}: a command in `text` is not run: use `console`"]
    return []


#: Code that a reader would take for a block, and that `read` does not find.
HIDDEN = [
    (re.compile(r"^[ \t]*~~~", re.M), "write a fence with three backticks, not with ~~~"),
    (re.compile(r"^[ ]*\t[ \t]*```", re.M), "indent a fence with spaces"),
    (re.compile(r"^[ ]*>[ ]*(```|~~~)", re.M), "a block in a quote is not run: take it out"),
    (re.compile(r"<(pre|code)\b", re.I), "write a fence, not HTML"),
    (re.compile(r"^[ ]*([-*]|\d+\.)[ ]+```", re.M), "begin a fence on a line of its own"),
]
#: Lines of prose that are indented like code, where no list is open.
INDENTED = re.compile(r"(?:\A|\n)(?![ ]*(?:[-*]|\d+\.) )(?![ \t])[^\n]*\n\n(?: {4,}|\t)\S")


def evasions(page, text):
    """What a page has that looks like code and that no test would run."""
    prose = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    plain = re.sub(r"(?<!`)`[^`\n]+`(?!`)", lambda name: "x" * len(name[0]), prose)
    wrong = [(match.start(), why) for pattern, why in HIDDEN for match in pattern.finditer(plain)]
    wrong += [(match.end(), "indented code is not run: write a fence") for match in INDENTED.finditer(prose)]
    wrong += [(match.start(), "this fence is not closed") for match in re.finditer(r"^ *```", prose, re.M)]
    found = [f"{page}:{prose.count(chr(10), 0, at) + 1}: {why}" for at, why in wrong]
    # The SDKs' tests run the first block of a README, and all blocks of a page in docs/ that stand at the margin.
    alone = not page.startswith("docs/")
    seen = set()
    for block in read(page, text):
        if block.language not in ("python", "ts") or block.why_not:
            continue
        if alone and block.language in seen:
            found.append(f"{block.where}: only the first {block.language} block of this page is run: add `not run: REASON`")
        if block.indented and block.language == "ts":
            found.append(f"{block.where}: an indented ts block is not run: put it at the margin")
        seen.add(block.language)
    return found


def program(page, language, how=""):
    """All blocks of a page that belong to one program, as one text with the lines where they were."""
    lines = []
    for block in blocks(page):
        if (block.language, block.how, block.why_not) == (language, how, ""):
            lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""

"""The pages that the program writes: every setting of a policy, and every command.

The words come from where the program has them (`policy init`, `--help`), so a page cannot say something else.
"""

import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRESETS = ("observe", "balanced", "strict")


def says(binary, *arguments):
    environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": "100"}
    done = subprocess.run([binary, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def sections(template):
    """The template of a policy as (section, its sentence, [(setting, meaning, example)])."""
    section, comment, found = "", [], [("", "The policy as a whole.", [])]
    for line in template.splitlines():
        if example := re.match(r"# (.*) Not set; an example: (\w+) = (.+)", line):
            found[-1][2].append((example[2], example[1], example[3]))
            comment = []
        elif setting := re.match(r"#?(\w+) = ", line):
            found[-1][2].append((setting[1], " ".join(comment), None))
            comment = []
        elif header := re.match(r"\[(.+)\]", line):
            section = header[1]
            found.append((section, " ".join(comment), []))
            comment = []
        elif line.startswith("# "):
            comment.append(line[2:])
        else:
            comment = []
    return found


def value(policy, section, setting):
    if section and section.split(".")[0] not in policy:
        policy = policy["agent"]  # The breaker is counted per agent.
    for part in [*filter(None, section.split(".")), setting]:
        if not isinstance(policy, dict) or part not in policy:
            return ""
        policy = policy[part]
    return "" if policy is None else "`" + json.dumps(policy) + "`"


def escaped(text):
    return text.replace("|", "\\|")


def policy_reference(binary):
    policies = {name: json.loads(says(binary, "policy", "show", name, "--json")) for name in PRESETS}
    lines = ["# Policy reference", "",
             "Every setting, as the program explains it, and its value in each preset. An empty cell means that there",
             "is no limit. [Policies](policy.md) shows how to write one. This page is written by",
             "`tests/docs/run --update`; do not edit it."]
    for section, about, settings in sections(says(binary, "policy", "init", "-")):
        lines += ["", f"## {f'[{section}]' if section else 'General'}", "", about, "",
                  "| setting | meaning | " + " | ".join(PRESETS) + " |", "|---" * 5 + "|"]
        for setting, meaning, example in settings:
            meaning = escaped(meaning) + (f" Example: `{example}`." if example else "")
            cells = [escaped(value(policies[name], section, setting)) for name in PRESETS]
            lines.append(f"| `{setting}` | {meaning} | " + " | ".join(cells) + " |")
    lines += ["", "Each section can also be about an agent over all its sessions (`[agent.budget]`), about the whole",
              "project (`[project.budget]`), or about scopes inside a session (`[nested.loop]`)."]
    return "\n".join(lines) + "\n"


def commands(binary):
    overview = says(binary, "--help")
    names = re.findall(r"^  ([a-z]+) ", overview[overview.index("Commands:") : overview.index("Options:")], re.M)
    lines = ["# Commands", "", "The program's own help, command by command. This page is written by",
             "`tests/docs/run --update`; do not edit it.", "", "```text", overview.strip(), "```"]
    for name in names:
        if name != "help":
            text = "\n".join(line.rstrip() for line in says(binary, name, "--help").strip().splitlines())
            lines += ["", f"## deadstop {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


PAGES = {"docs/policy-reference.md": policy_reference, "docs/commands.md": commands}


def check(binary, update=False):
    """Whether the pages are what the program says today; writes them if that is asked for."""
    wrong = []
    for name, write in PAGES.items():
        path, text = ROOT / name, write(binary)
        if update:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.append(f"{name} is not what the program says: run tests/docs/run --update")
    return wrong

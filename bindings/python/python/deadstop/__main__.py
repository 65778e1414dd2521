"""`python -m deadstop`: the program that comes with the wheel."""

from __future__ import annotations

import os
import sys
import sysconfig


def program() -> str | None:
    """Where the program is: with this Python's scripts, or those of the user."""
    for scheme in (None, sysconfig.get_preferred_scheme("user")):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = os.path.join(folder, "deadstop")
        if os.path.isfile(path):
            return path
    return None


def main() -> None:
    path = program()
    if path is None:
        sys.exit("error: this wheel has no program\nhint: build one with `make dist`, or use the program on its own")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()

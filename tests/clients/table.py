"""A table in a page that a test writes: one row a program, those of other programs stay."""

import fcntl

END = "<!-- end of matrix -->"


def write(row, page, begin):
    """Puts a row into the page's table, behind `begin`. The first cell holds a name and a version."""
    with page.open() as lock:
        # Two runs may write at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        put(row, page, begin)


def put(row, page, begin):
    before, _, rest = page.read_text().partition(begin)
    table, _, after = rest.partition(END)
    names = list(row)
    kept = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == len(names) and cells[0] != names[0] and not line.startswith("|--"):
            kept[cells[0].rpartition(" ")[0]] = cells
    kept[str(row[names[0]]).rpartition(" ")[0]] = [str(row[name]) for name in names]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(kept[key]) + " |" for key in sorted(kept, key=str.lower)]
    page.write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + END + after)

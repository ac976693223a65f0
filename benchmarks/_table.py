"""Tables of measurements, on the screen and in RESULTS.md."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
_HEAD = """# Measured results

Each section was written by the command it names; the figures are medians of interleaved runs, in which the sides take
turns so that a slow spell of the machine hits all of them.
"""


def machine() -> str:
    """The machine in general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}; load average at the start {os.getloadavg()[0]:.1f}"
    )


def render(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned."""
    widths = [max(len(r[c]) for r in (head, *rows)) for c in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        out = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return "| " + " | ".join(out) + " |"

    rule = "|" + "|".join("-" * (w + 2) if c == 0 else "-" * (w + 1) + ":" for c, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def record(title: str, text: str, command: str) -> None:
    """Replaces (or adds) a section of RESULTS.md."""
    section = f"## {title}\n\n`{command}` on {machine()}.\n\n{text.strip()}\n"
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else _HEAD
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    new = pattern.sub(lambda _: section + "\n", old) if pattern.search(old) else old.rstrip() + "\n\n" + section
    RESULTS.write_text(new.rstrip() + "\n", encoding="utf-8")
    print(f"written to {RESULTS.name}", file=sys.stderr)

"""Writes docs/compatibility.md and the README's table from the last run of the matrix (ci/results.json).

python ci/run.py --json ci/results.json && python ci/compatibility.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cells import LEVELS, ROOT, Cell, Outcome, read_matrix
from run import table

RESULTS = ROOT / "ci" / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- compatibility: written by ci/compatibility.py -->", "<!-- end of compatibility -->"
MEANING = {
    "L1": "it imports, and the contract episodes pass through it unchanged",
    "L2": "the framework's real rollout path and data types, compared field by field",
    "L3": "real optimizer steps in the framework's own trainer",
    "L4": "the success rate rises in that trainer",
}


def load() -> tuple[str, list[Outcome]]:
    """The date and the outcomes of the last run."""
    content: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return content["date"], [Outcome(**o) for o in content["outcomes"]]


def readme_table(date: str, outcomes: list[Outcome], cells: dict[str, Cell]) -> str:
    """A row a framework, its versions with the level each reached."""
    by_framework: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_framework.setdefault(outcome.framework, []).append(outcome)
    lines = ["| framework | version: level reached | example |", "|---|---|---|"]
    for framework, rows in by_framework.items():
        if framework == "gem-adapters":
            name, versions = "`gem_core` alone", ", ".join(f"Python {o.python}: {mark(o)}" for o in rows)
        else:
            name, versions = framework, ", ".join(f"{o.version}: {mark(o)}" for o in rows)
        example = next((cells[o.cell].example for o in rows if o.cell in cells and cells[o.cell].example), "")
        lines.append(f"| {name} | {versions} | {f'[`{example}`]({example})' if example else ''} |")
    levels = "; ".join(f"{level}: {MEANING[level]}" for level in LEVELS)
    return "\n".join([*lines, "", f"Last run of the matrix: {date}, on two CPU cores. {levels}."])


def mark(outcome: Outcome) -> str:
    return f"**{outcome.reached}**" if outcome.ok else f"{outcome.reached} (fails: {outcome.asked} asked)"


def page(date: str, outcomes: list[Outcome], cells: dict[str, Cell]) -> str:
    """The whole of docs/compatibility.md."""
    lines = ["# Compatibility", "", f"Printed by `python ci/run.py` on {date}:", "", "```", table(outcomes), "```", ""]
    lines += [f"- **{level}**: {meaning}." for level, meaning in MEANING.items()]
    lines += ["", "## What each cell installs", ""]
    for outcome in outcomes:
        cell = cells[outcome.cell]
        lines.append(f"### {cell.name}: {cell.framework} {cell.version}, Python {cell.python}")
        lines += ["", "```bash", *(f"pip install {' '.join(map(quoted, step))}" for step in cell.install), "```", ""]
        if cell.note:
            lines += [f"{cell.note[0].upper()}{cell.note[1:].rstrip('.')}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def quoted(argument: str) -> str:
    return f"'{argument}'" if set(argument) & set("[]<>*! ") else argument


def put_in(readme: str, content: str) -> str:
    """The README with its table replaced.

    Raises:
        ValueError: the markers are missing.
    """
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md needs the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def main() -> None:
    date, outcomes = load()
    cells = {c.name: c for c in read_matrix()}
    PAGE.write_text(page(date, outcomes, cells), encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(put_in(readme, readme_table(date, outcomes, cells)), encoding="utf-8")


if __name__ == "__main__":
    main()

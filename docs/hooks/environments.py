"""Writes the tables of docs/environments.md from the registry: ``python docs/hooks/environments.py [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import gem_core
from gem_core import EnvSpec

PAGE = Path(__file__).resolve().parents[1] / "environments.md"
BEGIN, END = "<!-- tables: written by docs/hooks/environments.py -->", "<!-- end of tables -->"
#: Those whose ids do not depend on what is installed.
KINDS = {
    "game": "Language games",
    "math": "Math",
    "code": "Code",
    "qa": "Questions",
    "logic": "Logic",
    "eval": "Evaluation sets",
    "terminal": "Terminal tasks",
    "multi": "Multi-agent games",
}


def tables() -> str:
    """A heading and a table for each kind; variants of one environment share a row."""
    parts = []
    for kind, title in KINDS.items():
        specs = [gem_core.spec(i) for i in gem_core.list_envs(f"{kind}:*")]
        rows = [_row(list(group)) for _, group in groupby(specs, key=lambda s: (_stem(s), s.summary))]
        head = ["| id | what | turns | return |", "|---|---|---|---|"]
        extras = sorted({s.extra for s in specs if s.extra})
        needs = f"Needs `pip install 'gem-adapters[{','.join(extras)}]'`.\n\n" if extras else ""
        parts.append(f"### {title} (`{kind}:`)\n\n{needs}" + "\n".join([*head, *rows]))
    return "\n\n".join(parts)


def _row(specs: list[EnvSpec]) -> str:
    first = specs[0]
    ids = f"`{first.id}`" + "".join(f", `{s.id.removeprefix(_stem(first))}`" for s in specs[1:])
    turns = _together("drawn" if s.max_turns is None else str(s.max_turns) for s in specs)
    returns = _together("" if s.reward_range is None else "{:g} to {:g}".format(*s.reward_range) for s in specs)
    return f"| {ids} | {first.summary} | {turns} | {returns} |"


def _stem(spec: EnvSpec) -> str:
    """``game:Wordle`` of ``game:Wordle-v0-easy``; the whole id where there is no version."""
    stem, mark, _ = spec.id.partition("-v0")
    return stem + mark


def _together(values: Iterable[str]) -> str:
    several = list(values)
    return several[0] if len(set(several)) == 1 else ", ".join(several)


def with_tables(page: str) -> str:
    """The page with its tables written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    new = with_tables(page)
    if "--check" in sys.argv:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

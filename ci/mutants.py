"""Breaks each adapter on purpose and shows that its cell notices: ``python ci/mutants.py [CELL ...]``.

For each mutant of mutants.toml, one line of an adapter is changed in a copy of the repository and the cell's tests run
there, in the environment that ``python ci/run.py CELL --keep`` left. A mutant that no test notices is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tomllib

sys.path.insert(0, str(Path(__file__).parent))

import json

from cells import CACHE, ROOT, Cell, environment, judge, marks, read_matrix, run

COPIED = ("gem_core", "adapters", "tests", "examples", "ci", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Mutant:
    """One change that an adapter's cell must notice."""

    cell: str
    #: What is wrong then: a wrong mask, rewards on the wrong token, a dropped turn, a swapped group.
    what: str
    file: str
    old: str
    new: str
    #: Tests that are enough; the cell's own if empty.
    tests: tuple[str, ...] = ()


def read_mutants(path: Path = ROOT / "ci" / "mutants.toml") -> list[Mutant]:
    """The mutants, each checked to apply to exactly one place.

    Raises:
        ValueError: a mutant's text is not in its file exactly once.
    """
    out = []
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
        mutant = Mutant(**{**table, "tests": tuple(table.get("tests", ()))})
        found = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if found != 1:
            raise ValueError(
                f"{mutant.cell}, {mutant.what}: the text is {found} times in {mutant.file}: {mutant.old!r}"
            )
        out.append(mutant)
    return out


def notices(cell: Cell, mutant: Mutant) -> str:
    """The first test that fails with the mutant in place, or nothing."""
    with tempfile.TemporaryDirectory(prefix="gem-mutant-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        target = copy / mutant.file
        target.write_text(target.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        env = environment(cell, copy)
        env["PATH"] = f"{CACHE / 'cells' / cell.name / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        # The copy goes before the editable installation.
        env["PYTHONPATH"] = os.pathsep.join([str(copy), str(copy / "adapters"), env["PYTHONPATH"]])
        levels = copy / "levels.jsonl"
        env["GEM_LEVELS"] = str(levels)
        python = CACHE / "cells" / cell.name / "venv" / "bin" / "python"
        command = [str(python), "-m", "pytest", "-q", "-x", "-p", "levels", "-W", "ignore", "-p", "no:cacheprovider"]
        tests = [str(copy / t) for t in (mutant.tests or cell.tests)]
        level = "L2" if cell.level > "L2" else cell.level
        run(
            [*command, "-m", marks(level), "--rootdir", str(copy), "-c", str(copy / "pyproject.toml"), *tests],
            copy / "log.txt",
            env,
            60 * cell.minutes,
        )
        rows = [json.loads(line) for line in levels.read_text(encoding="utf-8").splitlines()] if levels.exists() else []
        if not rows:
            raise RuntimeError(f"{cell.name}: no test ran: {(copy / 'log.txt').read_text(encoding='utf-8')[-800:]}")
        return judge(rows)[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all that have mutants")
    args = parser.parse_args()
    cells = {c.name: c for c in read_matrix()}
    missed = 0
    for mutant in read_mutants():
        if args.cells and mutant.cell not in args.cells:
            continue
        found = notices(cells[mutant.cell], mutant)
        missed += not found
        print(f"{mutant.cell:18} {mutant.what:28} {found or 'NOT NOTICED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

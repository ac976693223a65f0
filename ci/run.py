"""Runs the cells of matrix.toml: which versions of each framework work, and how far.

    python ci/run.py                    every cell
    python ci/run.py trl-1-16-0 oat     some
    python ci/run.py --list
    python ci/run.py --latest           each framework's newest release instead of the pinned one

Each cell gets a virtual environment of its own, built from scratch. A framework that is missing or has another version
than asked fails its cell, and so does a test that is skipped. Levels: L1 imports and contract; L2 the framework's real
rollout path and data types, field by field; L3 real optimizer steps in its own trainer; L4 the success rate rises.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cells import Cell, Outcome, changed_signatures, newest_release, read_matrix, run_cell


def table(outcomes: list[Outcome]) -> str:
    """What is printed at the end, and what the documentation shows."""
    lines = [f"{'cell':18} {'asked':6} {'reached':8} {'seconds':>8}  {'tests':34} first failing line"]
    for o in outcomes:
        lines.append(f"{o.cell:18} {o.asked:6} {o.reached:8} {o.seconds:8.0f}  {o.tests:34} {o.failure}".rstrip())
    return "\n".join(lines)


def latest(cells: list[Cell]) -> list[Cell]:
    """The first cell of each framework, at the framework's newest release."""
    out: dict[str, Cell] = {}
    for cell in cells:
        if cell.framework not in out and cell.framework != "gem-adapters" and cell.released:
            newest = newest_release(cell.framework)
            pin = (f"{cell.framework}=={cell.version}", f"{cell.framework}=={newest}")
            install = [[argument.replace(*pin) for argument in step] for step in cell.install]
            out[cell.framework] = replace(
                cell, name=f"{cell.framework}-latest", version=newest, install=install, untested=True
            )
    return list(out.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the cells and stop")
    parser.add_argument("--latest", action="store_true", help="try each framework's newest release; say what changed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there too")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time (2)")
    parser.add_argument("--keep", action="store_true", help="leave the environments in .cache/cells")
    args = parser.parse_args()
    matrix = read_matrix()
    if unknown := sorted(set(args.cells) - {c.name for c in matrix}):
        parser.error(f"no cell is called {', '.join(unknown)}; there are {', '.join(c.name for c in matrix)}")
    cells = [c for c in matrix if not args.cells or c.name in args.cells]
    if args.list:
        for c in cells:
            print(f"{c.name:18} {c.framework} {c.version:10} python {c.python:5} {c.level}  {c.note}")
        return 0
    started = time.monotonic()
    if args.latest:
        cells = latest(cells)

    def one(cell: Cell) -> Outcome:
        print(f"{cell.name} ...", flush=True)
        outcome = run_cell(cell, keep=args.keep)
        print(f"{cell.name}: {outcome.reached} in {outcome.seconds:.0f} s {outcome.failure}", flush=True)
        return outcome

    # The longest first, so that none of them is left for the end.
    order = sorted(cells, key=lambda c: -c.minutes)
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        by_name = {o.cell: o for o in pool.map(one, order)}
    outcomes = [by_name[c.name] for c in cells]
    print(f"\n{table(outcomes)}\n\n{time.monotonic() - started:.0f} s in all")
    if args.latest:
        for cell, outcome in zip(cells, outcomes, strict=True):
            for line in changed_signatures(cell, outcome):
                print(f"{cell.framework} {cell.version}: {line}")
    if args.json:
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        content = {"date": date, "outcomes": [asdict(o) for o in outcomes]}
        args.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0 if all(o.ok for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

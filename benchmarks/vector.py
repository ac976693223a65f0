"""Vectorised execution beside GEM 0.1 and Gymnasium.

    python benchmarks/vector.py --gem-python PATH/TO/python [--rounds 5] [--record]

``--gem-python`` names an interpreter that has gem-llm 0.1.0; without it only ours and Gymnasium run. Every figure is
the median over the rounds of a ratio to a limit that was measured in the same round: the bare loop (cheap), the
free-running ideal of n / 27.5 ms (waits), two plain processes (computes), the same vector without its slow environment
(one slow). ``--record`` writes the table to RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _table import machine, record, render
from _vector_sides import MEAN_WAIT_S

_SIDES = Path(__file__).parent / "_vector_sides.py"


class Side:
    """A process that measures one library."""

    def __init__(self, python: str, name: str) -> None:
        self.name = name
        self._command = [python, str(_SIDES), name]

    def ask(self, **request: Any) -> float:
        return self.ask_all(**request)["rate"]

    def ask_all(self, **request: Any) -> dict[str, float]:
        """A fresh process every time: threads that a library leaves behind slow nobody down."""
        line = json.dumps({"side": self.name, **request}) + "\n"
        done = subprocess.run(self._command, input=line, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(f"{self.name}: {done.stderr.strip()[-2000:]}")
        answer: dict[str, float] = json.loads(done.stdout)
        return answer


@dataclass(frozen=True)
class Row:
    title: str
    kind: str
    n: int
    target: str
    limit: str
    #: For each side: what is measured and how.
    plans: dict[str, dict[str, Any]]
    #: GEM 0.1's figure in the requirements.
    known: str = ""


def rows() -> list[Row]:
    sync = {"what": "paired", "how": "sync"}
    step = {"what": "lockstep", "how": "thread"}
    processes = {"what": "lockstep", "how": "process"}
    out = [
        Row(
            "cheap (GuessTheNumber), 64 envs, synchronous", "game", 64, "0.85", "bare loop", {"ours": sync, "gem": sync}
        ),
        Row(
            "very cheap (2 us a step), 64 envs, synchronous",
            "cheap",
            64,
            "-",
            "bare loop",
            {"ours": sync, "gem": sync, "gymnasium": sync},
        ),
    ]
    for n in (64, 256):
        plans = {"ours": {"what": "free", "how": "thread", "min_ready": 1}, "gem": step}
        if n == 64:  # a process an environment
            plans["gymnasium"] = processes
        out.append(Row(f"waits 5 to 50 ms, {n} envs", "wait", n, "0.95", "n / 27.5 ms", plans))
    plans = {"ours": {"what": "free", "how": "process", "min_ready": 16}, "gem": step, "gymnasium": processes}
    out.append(Row("computes 1 ms, 64 envs, two workers", "compute", 64, "1.8", "two plain processes", plans))
    plans = {"ours": {"what": "free", "how": "thread", "min_ready": 1}, "gem": step, "gymnasium": processes}
    out.append(Row("one of 64 takes 2 s a step (threads)", "slow", 64, "0.95", "without it", plans))
    plans = {"ours": {"what": "free", "how": "process", "min_ready": 1}}
    out.append(Row("one of 64 takes 2 s a step (two processes)", "slow", 64, "0.95", "without it", plans))
    return out


def measure(row: Row, sides: dict[str, Side], rounds: int, seconds: float, loops: int) -> tuple[list[str], Any]:
    """The row's cells: ours, GEM, Gymnasium, limit, target; and all figures."""
    common = {"n": row.n, "seconds": seconds, "loops": loops, "min_ready": 1}
    ratios: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    limits: list[float] = []
    for i in range(rounds):
        names = [s for s in (sides if i % 2 == 0 else reversed(sides)) if s in row.plans]
        if row.kind == "compute":
            base = sides["ours"].ask(**{**common, "kind": "compute", "what": "lockstep", "how": "sync"})
            limit = sides["ours"].ask(**{**common, "kind": "compute", "what": "two_processes"})
            limits.append(limit / base)
        for name in names:
            plan = {**common, **row.plans[name]}
            if plan["what"] == "paired":
                answer = sides[name].ask_all(**plan, kind=row.kind)
                rates.setdefault(name, []).append(answer["rate"])
                ratios.setdefault(name, []).append(answer["rate"] / answer["base"])
                continue
            if row.kind == "wait":
                base = row.n / MEAN_WAIT_S
            elif row.kind == "slow":
                base = sides[name].ask(**plan, kind="wait") * (row.n - 1) / row.n
            rate = sides[name].ask(**plan, kind=row.kind)
            rates.setdefault(name, []).append(rate)
            ratios.setdefault(name, []).append(rate / base)

    def cell(name: str) -> str:
        if name not in ratios:
            return "-"
        return f"{statistics.median(ratios[name]):.2f} ({statistics.median(rates[name]):,.0f}/s)"

    limit_cell = f"1.00 ({row.limit})"
    if row.kind == "compute":
        limit_cell = f"{statistics.median(limits):.2f} ({row.limit})"
    cells = [row.title, cell("ours"), cell("gem"), cell("gymnasium"), limit_cell, row.target]
    return cells, {"ratios": ratios, "rates": rates, "limits": limits}


HEAD = ["", "ours", "GEM 0.1", "Gymnasium", "limit", "wanted"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gem-python", help="a Python interpreter that has gem-llm 0.1.0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--only", default="", help="rows whose title contains this")
    parser.add_argument("--json", type=Path, help="write all figures here, too")
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    args = parser.parse_args()
    sides = {"ours": Side(sys.executable, "ours")}
    if args.gem_python:
        sides["gem"] = Side(args.gem_python, "gem")
    try:
        import gymnasium  # noqa: F401

        sides["gymnasium"] = Side(sys.executable, "gymnasium")
    except ImportError:
        pass
    print(machine())
    loops = int(sides["ours"].ask(what="calibrate"))
    table, figures = [], {}
    for row in rows():
        if args.only not in row.title:
            continue
        cells, figures[row.title] = measure(row, sides, args.rounds, args.seconds, loops)
        table.append(cells)
        print("  ".join(cells), flush=True)
    text = render(HEAD, table)
    print("\n" + text)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    if args.record:
        explanation = (
            "Ratios to the limit, and steps a second in brackets. Cheap: to the bare loop over the same environments "
            "(CPU time). Waits: to the free-running ideal. Computes: to the synchronous rate; Gymnasium runs a process "
            "an environment, all others two workers. One slow: the rate of the other 63 to what they do without it."
        )
        record("Vectorised execution", f"{text}\n\n{explanation}", "python benchmarks/vector.py --gem-python PYTHON")


if __name__ == "__main__":
    main()

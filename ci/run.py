"""Runs the compatibility cells of matrix.toml: ``python ci/run.py [CELL ...] [--list] [--json FILE]``.

Each cell gets a virtual environment of its own, built from scratch; a framework that is missing or has another version
than asked fails its cell, as does a test that is skipped.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".cache" / "cells"


@dataclass
class Outcome:
    """What one cell came to."""

    cell: str
    framework: str
    version: str
    asked: str
    reached: str
    seconds: float
    tests: str
    failure: str


def run(command: list[str], log: Path, timeout: float) -> tuple[int, str]:
    """Runs a command in the repository's root; returns its exit status and output, which goes to ``log`` too."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
        status, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as e:
        out = e.stdout or b""
        status, output = 124, (out.decode(errors="replace") if isinstance(out, bytes) else out) + "\ntime limit\n"
    with log.open("a", encoding="utf-8") as file:
        file.write(output)
    return status, output


def run_cell(name: str, cell: dict[str, Any]) -> Outcome:
    """Builds the cell's environment and runs its tests."""
    started = time.monotonic()
    end = started + 60 * cell["minutes"]
    folder = ENVIRONMENTS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    python = folder / "venv" / "bin" / "python"

    def outcome(reached: str, tests: str = "", failure: str = "") -> Outcome:
        seconds = round(time.monotonic() - started, 1)
        return Outcome(name, cell["framework"], cell["version"], cell["level"], reached, seconds, tests, failure)

    interpreter = shutil.which(f"python{cell['python']}") or sys.executable
    steps = [[interpreter, "-m", "venv", str(python.parents[1])]]
    steps += [[str(python), "-m", "pip", "install", "-q", *arguments] for arguments in cell["install"]]
    for step in steps:
        status, output = run(step, log, end - time.monotonic())
        if status:
            return outcome("-", failure=f"install: {last_line(output)}")
    probe = f"import importlib.metadata as m; print(m.version({cell['framework']!r}))"
    status, output = run([str(python), "-c", probe], log, 60)
    if status or output.strip() != cell["version"]:
        return outcome("-", failure=f"{cell['framework']} is {output.strip()[-80:]!r}, not {cell['version']}")
    arguments = ["-m", "pytest", "-q", "-rs", "-W", "ignore", *cell["tests"]]
    status, output = run([str(python), *arguments], log, end - time.monotonic())
    counted = re.findall(r"(\d+ (?:passed|failed|errors?|skipped))", output)
    tests = ", ".join(dict.fromkeys(counted))
    if status or "skipped" in tests or "passed" not in tests:
        failed = re.findall(r"^(?:FAILED|ERROR|SKIPPED) .*", output, re.MULTILINE)
        return outcome("L1", tests, failed[0][:160] if failed else last_line(output))
    return outcome(cell["level"], tests)


def last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no output"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the cells and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there too")
    args = parser.parse_args()
    matrix = tomllib.loads((ROOT / "ci" / "matrix.toml").read_text(encoding="utf-8"))
    if unknown := sorted(set(args.cells) - set(matrix)):
        parser.error(f"no cell is called {', '.join(unknown)}; there are {', '.join(matrix)}")
    if args.list:
        for name, cell in matrix.items():
            print(f"{name:16} {cell['framework']} {cell['version']}  python {cell['python']}  {cell['level']}")
        return 0
    outcomes = []
    for name in args.cells or matrix:
        print(f"{name} ...", flush=True)
        outcomes.append(run_cell(name, matrix[name]))
    print(f"\n{'cell':16} {'asked':6} {'reached':8} {'seconds':>8}  tests")
    for o in outcomes:
        print(f"{o.cell:16} {o.asked:6} {o.reached:8} {o.seconds:8.1f}  {o.tests}  {o.failure}")
    if args.json:
        args.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=2) + "\n", encoding="utf-8")
    return 0 if all(o.reached == o.asked for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Calls a second of the sandbox, beside GEM 0.1's ``run_python`` in the same run, and 2,000 calls in a row.

    python benchmarks/sandbox.py [--gem-python PATH] [--calls 300] [--soak 2000] [--level LEVEL]

``--gem-python`` is an interpreter that has ``gem-llm`` 0.1 (its ``sandbox_type="none"``: no isolation). The two take
turns, round by round, so that a machine that is busy with something else slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gem_core.sandbox import LEVELS, Sandbox

PROGRAMS = {
    "plain": "print(sum(range(100)))",
    "numpy": "import numpy as np\nprint(np.arange(10).sum())",
    "sympy": "import sympy\nprint(sympy.sqrt(16))",
}
CONCURRENCY = (1, 8, 32)
_GEM = """
import json, os, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from gem.utils.sandbox import run_python
os.chdir(tempfile.mkdtemp())
print("ready", flush=True)
for line in sys.stdin:
    code, calls, threads = json.loads(line)
    with ThreadPoolExecutor(threads) as executor:
        started = time.perf_counter()
        failed = sum(not ok for ok, *_ in executor.map(lambda _: run_python(code, "none"), range(calls)))
        print(json.dumps([time.perf_counter() - started, failed]), flush=True)
"""


def ours(sandbox: Sandbox) -> Callable[[str, int, int], float]:
    def seconds(code: str, calls: int, threads: int) -> float:
        with ThreadPoolExecutor(threads) as executor:
            started = time.perf_counter()
            for result in executor.map(lambda _: sandbox.run(code, supply_imports=True), range(calls)):
                assert result.ok, result
            return time.perf_counter() - started

    return seconds


def gem(python: str) -> Callable[[str, int, int], float]:
    environment = {**os.environ, "PATH": f"{os.path.dirname(os.path.abspath(python))}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [python, "-c", _GEM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def seconds(code: str, calls: int, threads: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([code, calls, threads]) + "\n")
        process.stdin.flush()
        taken, failed = json.loads(process.stdout.readline())
        if failed:
            print(f"  (GEM: {failed} of {calls} calls failed, of its time limit of 10 s)")
        return float(taken)

    return seconds


def compare(sandbox: Sandbox, gem_python: str | None, calls: int, rounds: int) -> None:
    runners = {"ours": ours(sandbox)}
    if gem_python:
        runners["GEM 0.1"] = gem(gem_python)
    print(f"{'program':8} {'concurrent':>10}", *(f"{name:>9}/s" for name in runners), "  ratio" * (len(runners) > 1))
    for name, code in PROGRAMS.items():
        for run in runners.values():
            run(code, 4, 4)  # what is started once
        for threads in CONCURRENCY:
            taken = dict.fromkeys(runners, 0.0)
            done = dict.fromkeys(runners, 0)
            for _ in range(rounds):
                for who, run in runners.items():
                    share = max(threads, calls // rounds)
                    if who != "ours":  # slower by an order of magnitude on some
                        share = max(1 if name != "plain" else threads, share // (3 if name == "plain" else 20))
                    taken[who] += run(code, share, threads)
                    done[who] += share
            rates = {who: done[who] / taken[who] for who in runners}
            ratio = f"{rates['ours'] / rates['GEM 0.1']:6.1f}x" if "GEM 0.1" in rates else ""
            print(f"{name:8} {threads:10}", *(f"{rate:11.0f}" for rate in rates.values()), ratio, flush=True)


def soak(sandbox: Sandbox, calls: int) -> None:
    """One call after another: the last hundreds take as long as the first."""
    times = []
    for i in range(calls):
        started = time.perf_counter()
        assert sandbox.run(f"print({i})").stdout == f"{i}\n"
        times.append(time.perf_counter() - started)
    part = max(1, calls // 10)
    shown = ", ".join(f"{statistics.median(times[i : i + part]) * 1e3:.2f}" for i in range(0, calls, part))
    print(f"{calls} calls in a row, median ms of each tenth: {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gem-python", help="interpreter with gem-llm 0.1")
    parser.add_argument("--calls", type=int, default=300, help="calls of ours for each line of the table")
    parser.add_argument("--rounds", type=int, default=3, help="turns that the two take")
    parser.add_argument("--soak", type=int, default=2000, help="calls in a row afterwards; 0 = none")
    parser.add_argument("--level", choices=LEVELS, help="isolation; the strongest there is by default")
    arguments = parser.parse_args()
    with Sandbox(level=arguments.level) as sandbox:
        found = sandbox.describe()
        load = os.getloadavg()[0]
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f}, level {found['level']}")
        compare(sandbox, arguments.gem_python, arguments.calls, arguments.rounds)
        if arguments.soak:
            soak(sandbox, arguments.soak)


if __name__ == "__main__":
    main()

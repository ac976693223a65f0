"""Evaluation's throughput against an endpoint that takes 200 ms an answer, beside the ideal.

    python benchmarks/evaluation.py [--record]

The server (that of the tests, in a process of its own) answers by a scripted expert after 200 ms. The ideal keeps all
64 places busy with nothing but those 200 ms: the same episodes, in the same order, each started when a place is free.
So the end, when there is nothing left to start, counts for both. ``steady`` leaves it out: turns a second of the middle
half of the episodes, beside 64 / 0.2 s. With the log: every answer and every episode is on disk before it counts.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _table import machine, record, render

from gem_core.evaluation import EvalResult, OpenAIPolicy, evaluate

SERVER = Path(__file__).parent.parent / "tests" / "evaluation" / "openai_server_for_tests.py"
LATENCY_S = 0.2
ENV = "game:GuessTheNumber-v0"


def ideal_s(turns: list[int], places: int) -> float:
    """When the last episode ends if a turn takes the latency and nothing else takes time."""
    free = [0.0] * places
    for n in turns:
        heapq.heapreplace(free, free[0] + n * LATENCY_S)
    return max(free)


def measure(url: str, episodes: int, places: int, log: str | None) -> tuple[float, float, float, float]:
    """Seconds and those of the ideal, steady turns a second, CPU seconds a turn."""
    ends: list[tuple[float, int]] = []
    policy = OpenAIPolicy("expert", base_url=url)
    cpu = time.process_time()
    result: EvalResult = evaluate(
        ENV,
        policy,
        episodes=episodes,
        concurrency=places,
        log=log,
        resume=False,
        on_episode=lambda e: ends.append((time.perf_counter(), len(e.turns))),
    )
    cpu = time.process_time() - cpu
    assert result.stats is not None
    assert result.stats.failed == 0
    middle = ends[len(ends) // 4 : 3 * len(ends) // 4]
    steady = sum(n for _, n in middle[1:]) / (middle[-1][0] - middle[0][0])
    turns = [r.turns for r in result.records]
    return result.stats.wall_s, ideal_s(turns, places), steady, cpu / sum(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    args = parser.parse_args()
    print(machine())
    command = [sys.executable, str(SERVER), "--latency", str(LATENCY_S)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rows = []
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        measure(url, 64, 64, None)  # imports and first connections
        for places, logged in ((64, False), (64, True), (16, True)):
            figures = []
            for _ in range(args.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    figures.append(measure(url, args.episodes * places // 64, places, folder if logged else None))
            wall, ideal, steady, cpu = (statistics.median(f[i] for f in figures) for i in range(4))
            ratio = statistics.median(f[1] / f[0] for f in figures)
            rows.append(
                [
                    f"concurrency {places}, {'with' if logged else 'without'} the log",
                    f"{wall:.2f}",
                    f"{ideal:.2f}",
                    f"{ratio:.3f}",
                    f"{steady * LATENCY_S / places:.3f}",
                    f"{1e3 * cpu:.2f}",
                    "0.9" if places == 64 else "-",
                ]
            )
            print("  ".join(rows[-1]), flush=True)
    finally:
        server.kill()
        server.communicate()
    head = ["", "seconds", "ideal", "ratio", "steady", "CPU ms a turn", "wanted"]
    text = render(head, rows)
    print("\n" + text)
    if args.record:
        record("Evaluation at an endpoint with 200 ms", text, "python benchmarks/evaluation.py")


if __name__ == "__main__":
    main()

"""Many short episodes with injected faults: is every one accounted for, is memory flat, does nothing stay?

    python benchmarks/soak.py [--episodes 200000] [--faults 0.02] [--executor process] [--record]

A share of the episodes gets a fault in its second step: an exception, a step that hangs, or SIGKILL to its worker.
Every episode must come out exactly once: as played, as failed with the fault that was injected, or as lost together
with a worker that another episode killed (that a hung one may be, too, before its time limit). Private memory is
sampled along the way; at the end no process, thread or open file may be left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
from _table import machine, record, render

from gem_core.core import Env, StepTuple
from gem_core.episode import Episode
from gem_core.policies import TextPolicy
from gem_core.rollout import Rollout, RolloutOptions, Task

KINDS = ("exception", "hang", "kill")


class SoakEnv(Env):
    """Three turns; ``options["fault"]`` strikes in the second."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed)
        self.turn, self.fault = 0, (options or {}).get("fault")
        return f"begin {self.rng.random():.6f}", {}

    def step(self, action: str) -> StepTuple:
        self.turn += 1
        if self.turn == 2 and self.fault:
            if self.fault == "exception":
                raise ValueError("injected")
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600)
        return f"turn {self.turn}: {self.rng.random():.6f}", 1.0, self.turn == 3, False, {}


def tasks(n: int, share: float, kinds: tuple[str, ...]) -> Iterator[Task]:
    rng = random.Random(0)
    for i in range(n):
        fault = rng.choice(kinds) if rng.random() < share else None
        yield Task(SoakEnv, seed=i, options={"fault": fault} if fault else None, metadata={"fault": fault})


def judge(episode: Episode) -> str:
    """What became of an episode; raises where that cannot be."""
    fault, error = episode.metadata["fault"], episode.error or ""
    if not episode.failed:
        assert fault is None, f"{fault} did not strike in {episode}"
        assert [t.reward for t in episode.turns] == [1.0, 1.0, 1.0]
        return "played"
    if "was killed by SIGKILL" in error:
        return "killed" if fault == "kill" else "lost with a killed worker"
    if "took longer than" in error and fault == "hang":
        return "hung"
    if "ValueError: injected" in error and fault == "exception":
        return "raised"
    # A companion of a hung step that could not finish in time, or a step that was starved on a busy machine.
    return f"other: {error.split(':')[0]}, {'had' if fault else 'no'} fault"


def memory_mb() -> tuple[float, float, int]:
    """Private memory of this process, of the largest of its descendants, and how many those are.

    Not the descendants' sum: a worker's private pages grow from 1 MB to at most 12 MB in its first seconds, as it
    writes to pages shared with its template, so the sum says how many workers were killed of late.
    """
    own = psutil.Process()
    children, largest = own.children(recursive=True), 0
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            largest = max(largest, child.memory_full_info().uss)
    return own.memory_full_info().uss / 2**20, largest / 2**20, len(children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--faults", type=float, default=0.02, help="share of the episodes")
    parser.add_argument("--executor", choices=("process", "thread", "ray"), default="process")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--limit", type=float, default=0.25, help="seconds that a step may take")
    parser.add_argument("--record", action="store_true", help="write the outcome to RESULTS.md")
    args = parser.parse_args()
    kinds = KINDS if args.executor != "thread" else KINDS[:1]  # a thread cannot be killed, with or without its process
    print(machine(), flush=True)
    before = (psutil.Process().num_fds(), threading.active_count())

    outcomes: collections.Counter[str] = collections.Counter()
    seen = bytearray(args.episodes)
    samples: list[tuple[float, float, int]] = []
    options = RolloutOptions(
        concurrency=args.concurrency,
        executor=args.executor,
        workers=args.workers if args.executor != "thread" else None,
        step_timeout_s=args.limit,
        reset_timeout_s=max(5.0, args.limit),
    )
    begin = time.perf_counter()
    with Rollout(tasks(args.episodes, args.faults, kinds), TextPolicy(lambda p: "on"), options=options) as run:
        for count, episode in enumerate(run, start=1):
            number = int(episode.episode_id)
            assert not seen[number], f"episode {number} came twice"
            seen[number] = 1
            outcomes[judge(episode)] += 1
            if count % max(1, args.episodes // 20) == 0:
                samples.append(memory_mb())
                own, largest, n = samples[-1]
                rate = count / (time.perf_counter() - begin)
                print(
                    f"{count:>8}  {rate:8.0f} ep/s  own {own:6.1f} MB  {n:3d} workers, largest {largest:5.1f} MB  "
                    f"{dict(outcomes)}",
                    flush=True,
                )
        seconds = time.perf_counter() - begin
        stats = run.stats
    missing = args.episodes - sum(seen)
    gc.collect()
    time.sleep(0.5)
    left = len(psutil.Process().children(recursive=True))
    after = (psutil.Process().num_fds(), threading.active_count())
    quarter = len(samples) // 4
    parts = (samples[:quarter], samples[-quarter:])
    early, late = ([max(column) for column in zip(*part, strict=True)] for part in parts)
    rows = [
        ["episodes", f"{args.episodes:,} ({args.episodes / seconds:,.0f}/s)"],
        ["missing or doubled", str(missing)],
        *[[name, f"{n:,}"] for name, n in sorted(outcomes.items())],
        ["memory of the main process, first and last quarter", f"{early[0]:.0f} MB, {late[0]:.0f} MB"],
        ["memory of the largest worker, first and last quarter", f"{early[1]:.0f} MB, {late[1]:.0f} MB"],
        ["processes, threads, open files left", f"{left}, {after[1] - before[1]}, {after[0] - before[0]}"],
    ]
    text = render(["", args.executor], rows)
    print("\n" + text)
    assert missing == 0
    assert stats.episodes == args.episodes
    assert left == 0, "processes are left"
    assert after[1] <= before[1], "threads are left"
    assert after[0] <= before[0], "files are left open"
    assert late[0] < early[0] * 1.25 + 10, "the main process grows"
    assert late[1] < early[1] * 1.25 + 10, "the workers grow"
    if args.record:
        record("Soak", text, "python benchmarks/soak.py " + " ".join(a for a in sys.argv[1:] if a != "--record"))


if __name__ == "__main__":
    main()

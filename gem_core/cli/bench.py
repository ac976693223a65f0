"""``gem bench``: how fast environments are on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Annotated, Any

import typer

from gem_core.cli.common import EnvArgs, complete_env, settings

#: A cheap game, one with a search in it, and one that renders a larger board.
DEFAULT_IDS = ("game:GuessTheNumber-v0", "game:Wordle-v0-hard", "game:Sokoban-v0-easy", "game:Sudoku-v0-easy")


def bench_command(
    env_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="[four games and the sandbox].", autocompletion=complete_env),
    ] = None,
    seconds: Annotated[float, typer.Option(help="For each measurement.")] = 2.0,
    env_arg: EnvArgs = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measures random play: one environment alone, then 64 episodes at once through the rollout loop.

    Without ids also the sandbox's programs a second. A figure is of one run; on a busy machine it says little.

    Examples:

        gem bench

        gem bench game:Minesweeper-v0-easy --seconds 5
    """
    if not seconds > 0:
        raise ValueError(f"--seconds must be positive, got {seconds}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    kwargs = settings(env_arg, "--env-arg")
    found: dict[str, Any] = {"cores": cores, "load": round(os.getloadavg()[0], 2), "envs": []}
    for env_id in env_ids or DEFAULT_IDS:
        found["envs"].append({**one_env(env_id, seconds, kwargs), **many_envs(env_id, seconds, kwargs)})
    if not env_ids:
        found["sandbox_programs_per_s"] = sandbox_rate(seconds)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("environment", no_wrap=True)
    for column in ("steps/s", "resets/s", "turns an episode", "rollout, turns/s"):
        table.add_column(column, justify="right")
    for row in found["envs"]:
        figures = (row["steps_per_s"], row["resets_per_s"], row["turns"], row["rollout_turns_per_s"])
        table.add_row(row["env_id"], *(f"{f:,.1f}" if f < 100 else f"{f:,.0f}" for f in figures))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)
    if "sandbox_programs_per_s" in found:
        rate = found["sandbox_programs_per_s"]
        console.print("sandbox: none" if rate is None else f"sandbox: {rate:,.0f} programs/s, one after the other")
    console.print(f"{cores} cores, load average at the start {found['load']}")


def one_env(env_id: str, seconds: float, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Random play in this thread; the time of drawing the actions is not counted."""
    import gem_core

    resets = steps = 0
    reset_s = step_s = 0.0
    with gem_core.make(env_id, **kwargs) as env:
        env.reset(seed=0)  # what loads at first use is no part of the rate
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            before = time.perf_counter()
            env.reset(seed=resets)
            reset_s += time.perf_counter() - before
            resets += 1
            over = False
            while not over and time.perf_counter() < end + seconds:
                action = env.sample_random_action()
                before = time.perf_counter()
                _, _, terminated, truncated, _ = env.step(action)
                step_s += time.perf_counter() - before
                steps += 1
                over = terminated or truncated
    return {
        "env_id": gem_core.spec(env_id).id,
        "steps_per_s": steps / step_s if step_s else 0.0,
        "resets_per_s": resets / reset_s if reset_s else 0.0,
        "turns": steps / resets,
    }


def many_envs(env_id: str, seconds: float, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Random play of 64 episodes at once through the rollout loop, where the environment's kind says: in this process,
    in threads or in worker processes."""
    import itertools

    from gem_core.rollout import Rollout, RolloutOptions, Task

    tasks = (Task(env_id, seed=i, kwargs=kwargs) for i in itertools.count())
    with Rollout(tasks, "random", None, RolloutOptions(concurrency=64)) as run:
        next(run)  # the workers are up
        turns, started = run.stats.turns, time.perf_counter()
        while time.perf_counter() - started < seconds:
            next(run)
        rate = (run.stats.turns - turns) / (time.perf_counter() - started)
    return {"rollout_turns_per_s": rate}


def sandbox_rate(seconds: float) -> float | None:
    """Empty programs a second, one after the other; None where there is no sandbox."""
    from gem_core.sandbox import Sandbox, SandboxError

    try:
        with Sandbox() as sandbox:
            sandbox.run("")
            started, runs = time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                sandbox.run("print(1)")
                runs += 1
            return runs / (time.perf_counter() - started)
    except (SandboxError, OSError):
        return None

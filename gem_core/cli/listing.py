"""``gem list`` and ``gem info``."""

from __future__ import annotations

import importlib.util
import json
from typing import Annotated, Any

import typer

from gem_core.cli.common import EnvArgs, EnvId, settings

#: The module that shows whether an extra is installed.
EXTRA_MODULES = {
    "math": "math_verify",
    "code": "datasets",
    "vision": "PIL",
    "search": "bm25s",
    "mcp": "mcp",
    "zim": "libzim",
    "ray": "ray",
    "trl": "trl",
    "verl": "verl",
    "eval": "aiohttp",
}


def list_command(
    pattern: Annotated[str | None, typer.Argument(help="Keeps ids that contain it or match it as a glob.")] = None,
    kind: Annotated[str | None, typer.Option(help="Keeps one namespace: game, math, rg, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Ids only, one a line.")] = False,
) -> None:
    """Lists environments.

    Examples:

        gem list

        gem list wordle

        gem list 'game:*-easy' --plain
    """
    import gem_core

    ids = gem_core.list_envs(pattern)
    if kind is not None:
        kinds = sorted({i.split(":")[0] for i in gem_core.list_envs() if ":" in i})
        if kind not in kinds:
            raise ValueError(f"no environment is of kind {kind!r}; there are {', '.join(kinds)}")
        ids = [i for i in ids if i.startswith(f"{kind}:")]
    if plain:
        for env_id in ids:
            print(env_id)
        return
    rows = [describe(env_id) for env_id in ids]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if not rows:
        raise ValueError(f"no environment matches {pattern!r}")
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column, right in (("id", False), ("kind", False), ("turns", True), ("reward", True), ("needs", False)):
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    table.add_column("what", overflow="ellipsis", no_wrap=True)
    for row in rows:
        needs = "" if row["needs"] is None else row["needs"] + ("" if row["installed"] else " (not installed)")
        turns = "" if row["turns"] is None else str(row["turns"])
        table.add_row(row["id"], row["kind"], turns, reward_text(row["reward_range"]), needs, row["summary"])
    # Without a terminal the whole table: what reads it wants whole ids.
    console = Console()
    if not console.is_terminal:
        console = Console(width=250)
    console.print(table)
    console.print(f"{len(rows)} environments")


def info_command(
    env_id: EnvId,
    env_arg: EnvArgs = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Describes an environment: its arguments, limits and rewards, what it needs, and how an episode begins.

    Example:

        gem info game:Wordle-v0-easy
    """
    import gem_core
    from gem_core.cli.signature import parameters_of
    from gem_core.session import with_suffix

    spec = gem_core.spec(env_id)
    row = describe(spec.id)
    row["arguments"] = {**parameters_of(spec), **spec.kwargs, **settings(env_arg, "--env-arg")}
    row["cost"] = spec.cost
    try:
        with gem_core.make(spec.id, **settings(env_arg, "--env-arg")) as env:
            observation, info = env.reset(seed=0)
            row["begins"] = with_suffix(observation, info)
    except (ImportError, OSError, RuntimeError) as e:
        row["begins"], row["problem"] = None, str(e)
    if as_json:
        print(json.dumps(row, indent=2, ensure_ascii=False, default=str))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    needs = "nothing more" if row["needs"] is None else f"pip install 'gem-adapters[{row['needs']}]'"
    shown = {
        "id": row["id"],
        "what": row["summary"],
        "turns": row["turns"] or "no fixed limit",
        "return": reward_text(row["reward_range"]) or "not stated",
        "needs": needs + ("" if row["installed"] else " (not installed)"),
        "a step": {"cheap": "takes microseconds", "waits": "waits for I/O", "computes": "computes"}[spec.cost],
        "scripted": "yes, --policy scripted" if row["scripted"] else "no expert",
        "arguments": "\n".join(f"{k} = {v!r}" for k, v in row["arguments"].items()) or "none",
    }
    for name, value in shown.items():
        table.add_row(name, Text(str(value)))
    console = Console()
    console.print(table)
    if row["begins"] is None:
        console.print(Text(f"\nIt cannot be started here: {row['problem']}"))
    else:
        console.print("\n[bold]An episode begins[/bold] (seed 0)\n")
        console.print(Text(row["begins"]))


def describe(env_id: str) -> dict[str, Any]:
    """What the registry knows of an id, JSON-able."""
    import gem_core
    from gem_core.experts import expert

    spec = gem_core.spec(env_id)
    try:
        scripted = bool(expert(spec.id)) if spec.kind == "game" else False
    except ValueError:
        scripted = False
    return {
        "id": spec.id,
        "kind": spec.kind,
        "turns": spec.max_turns,
        "reward_range": spec.reward_range,
        "needs": spec.extra,
        "installed": spec.extra is None or installed(spec.extra),
        "scripted": scripted,
        "summary": spec.summary,
    }


def installed(extra: str) -> bool:
    module = EXTRA_MODULES.get(extra)
    return module is None or importlib.util.find_spec(module) is not None


def reward_text(reward_range: tuple[float, float] | None) -> str:
    return "" if reward_range is None else f"{reward_range[0]:g} to {reward_range[1]:g}"

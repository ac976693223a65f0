"""``gem doctor``: what is installed, which frameworks' versions are served, how programs are isolated."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

#: Adapter package -> its framework's distribution and the extra that brings it.
ADAPTERS = {
    "gem_trl": ("trl", "trl"),
    "gem_verl": ("verl", "verl"),
    "gem_openrlhf": ("openrlhf", "openrlhf"),
    "gem_oat": ("oat-llm", "oat"),
    "gem_roll": ("roll", "roll"),
    "gem_rl2": ("rl-square", "rl2"),
    "gem_tinker": ("tinker", "tinker"),
}
PACKAGES = (
    "numpy",
    "torch",
    "transformers",
    "vllm",
    "ray",
    "datasets",
    "pyarrow",
    "aiohttp",
    "tenacity",
    "typer",
    "rich",
)
#: Distribution -> what is missing without it.
WANTED = {
    "math_verify": ("math", "math: and eval: environments grade by it"),
    "datasets": ("math", "datasets from the Hub"),
    "reasoning_gym": ("math", "rg: environments"),
    "bm25s": ("search", "the local search index"),
    "mcp": ("mcp", "MCP tools"),
    "libzim": ("zim", "WikiGame on a Wikipedia dump"),
    "PIL": ("vision", "environments with pictures"),
    "aiohttp": ("eval", "evaluation at an endpoint"),
    "tenacity": ("eval", "evaluation at an endpoint"),
}


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    sandbox: Annotated[bool, typer.Option(help="Start the sandbox to see its level.")] = True,
) -> int:
    """Shows what is installed, which framework versions the adapters serve, and how programs are isolated.

    Exit code 1: an installed framework's version is not served by its adapter, or programs cannot be run.

    Example:

        gem doctor
    """
    found = examine(sandbox=sandbox)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _show(found)
    refused = any(a["installed"] and not a["served"] for a in found["adapters"])
    return 1 if refused or "error" in found["sandbox"] else 0


def examine(*, sandbox: bool = True) -> dict[str, Any]:
    """Everything that ``gem doctor`` shows, JSON-able."""
    import gem_core

    adapters = [a for package in ADAPTERS if (a := _adapter(package)) is not None]
    found: dict[str, Any] = {
        "gem-adapters": gem_core.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "gpu": _gpu(),
        "adapters": adapters,
        "environments": _environments(),
        "sandbox": _sandbox() if sandbox else {},
    }
    found["hints"] = _hints(found)
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _adapter(package: str) -> dict[str, Any] | None:
    """None where the adapter is not part of this installation."""
    distribution, extra = ADAPTERS[package]
    spec = importlib.util.find_spec(package)  # does not import it: that would refuse a missing framework
    if spec is None or spec.origin is None:
        return None
    constants = _constants(Path(spec.origin).with_name("_compat.py"))
    installed = _version(distribution)
    served = list(constants.get("SUPPORTED", ()))
    oldest, below = constants.get("OLDEST", ""), constants.get("FIRST_UNSUPPORTED", "")
    if isinstance(oldest, tuple):  # OLDEST, FIRST_UNSUPPORTED = ...
        oldest, below = oldest
    from gem_core._versions import release

    ok = bool(installed) and (
        installed in served if served else bool(oldest) and release(oldest) <= release(str(installed)) < release(below)
    )
    text = ", ".join(served) if served else f"{oldest} up to, not including, {below}" if oldest else "?"
    return {
        "package": package,
        "framework": distribution,
        "extra": extra,
        "installed": installed,
        "supports": text,
        "served": ok,
    }


def _constants(path: Path) -> dict[str, Any]:
    """Top-level constants of a module, without running it."""
    if not path.exists():
        return {}
    out: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                out[target.id] = value
            elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
                names = [t.id for t in target.elts if isinstance(t, ast.Name)]
                out.update(zip(names, value, strict=False))
    return out


def _gpu() -> str | None:
    """The first GPU's name; None where there is none. Asks the driver's tool: importing torch takes seconds."""
    import shutil
    import subprocess

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        command = [tool, "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return None
    names = [n for n in names if n.strip()]
    return f"{names[0]} x {len(names)}" if names else None


def _environments() -> dict[str, int]:
    import gem_core

    kinds: dict[str, int] = {}
    for env_id in gem_core.list_envs():
        kind = env_id.split(":")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def _sandbox() -> dict[str, Any]:
    from gem_core.sandbox import Sandbox

    try:
        with Sandbox() as sandbox:
            found = sandbox.describe()
    except Exception as e:  # a doctor does not fall ill itself
        return {"error": f"{type(e).__name__}: {e}"}
    return {"level": found["level"], "refused": found["refused"], "lacks": found["lacks"]}


def _hints(found: dict[str, Any]) -> list[str]:
    hints = []
    for adapter in found["adapters"]:
        if adapter["installed"] and not adapter["served"]:
            hints.append(
                f"{adapter['framework']} {adapter['installed']} is not served ({adapter['supports']}): "
                f"pip install 'gem-adapters[{adapter['extra']}]'"
            )
    missing: dict[str, list[str]] = {}
    for module, (extra, what) in WANTED.items():
        if importlib.util.find_spec(module) is None:
            missing.setdefault(extra, []).append(what)
    hints += [
        f"pip install 'gem-adapters[{extra}]' brings {'; '.join(dict.fromkeys(what))}"
        for extra, what in missing.items()
    ]
    for name, reason in found["sandbox"].get("refused", {}).items():
        hints.append(f"stronger isolation {name!r} is not available here: {reason}")
    if found["packages"]["torch"] and not found["gpu"]:
        hints.append("no GPU: local models run on the CPU")
    if sys.version_info >= (3, 14):
        hints.append("this Python is newer than those the package is tested with")
    return hints


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)
    console.print(
        f"gem-adapters {found['gem-adapters']}, Python {found['python']}, {found['platform']}, {found['cores']} cores, "
        + (found["gpu"] or "no GPU")
    )
    packages = ", ".join(f"{n} {v}" for n, v in found["packages"].items() if v)
    console.print(Text(f"packages: {packages}"))
    absent = ", ".join(n for n, v in found["packages"].items() if not v)
    if absent:
        console.print(Text(f"not installed: {absent}"))
    table = Table(title="adapters", title_justify="left", box=None, pad_edge=False)
    for column in ("adapter", "framework", "installed", "serves", ""):
        table.add_column(column)
    for a in found["adapters"]:
        verdict = "served" if a["served"] else "NOT SERVED" if a["installed"] else ""
        table.add_row(a["package"], a["framework"], a["installed"] or "-", a["supports"], verdict)
    console.print(table)
    console.print(Text("environments: " + ", ".join(f"{n} {kind}" for kind, n in found["environments"].items())))
    sandbox = found["sandbox"]
    if "error" in sandbox:
        console.print(Text(f"sandbox: none ({sandbox['error']})", style="red"))
    elif sandbox:
        lacks = f"; it does not keep a program from: {', '.join(sandbox['lacks'])}" if sandbox["lacks"] else ""
        console.print(Text(f"sandbox: {sandbox['level']}{lacks}"))
    for hint in found["hints"]:
        console.print(Text(f"- {hint}"))

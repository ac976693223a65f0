"""One cell of the matrix: its environment, its tests, and how far they came."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
SIGNATURES = ROOT / "ci" / "signatures.json"
LEVELS = ("L1", "L2", "L3", "L4")


@dataclass(frozen=True)
class Cell:
    """A table of matrix.toml."""

    name: str
    #: Distribution name, as pip knows it.
    framework: str
    version: str
    python: str
    #: The level that the tests must reach.
    level: str
    #: Arguments of ``pip install``, one list a step.
    install: list[list[str]]
    #: Arguments of pytest.
    tests: list[str]
    #: Time limit of the whole cell.
    minutes: float
    #: The example that the tests run, for the documentation.
    example: str = ""
    #: What is left out of the installation or stands in for it, and why.
    note: str = ""
    env: dict[str, str] = field(default_factory=dict)
    #: Files and folders that the environment's Python sees first (stand-ins), relative to the repository.
    pythonpath: list[str] = field(default_factory=list)
    #: ``module:Name.attribute`` of what the adapter hangs on in the framework; their signatures are on record.
    watch: list[str] = field(default_factory=list)
    #: The framework is on the package index.
    released: bool = True
    #: Let the adapter try a version that it does not serve.
    untested: bool = False


@dataclass
class Outcome:
    """What one cell came to."""

    cell: str
    framework: str
    version: str
    python: str
    asked: str
    #: The highest level of which every test passed, and those of all levels below; "-" for none.
    reached: str
    seconds: float
    tests: str = ""
    failure: str = ""
    signatures: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.reached in LEVELS and LEVELS.index(self.reached) >= LEVELS.index(self.asked) and not self.failure


def read_matrix(path: Path = ROOT / "ci" / "matrix.toml") -> list[Cell]:
    """The cells in the order of the file.

    Raises:
        TypeError: a key is missing or unknown.
        ValueError: a level is unknown, or the version asked for is not among what is installed.
    """
    cells = [Cell(name=name, **table) for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()]
    for cell in cells:
        if cell.level not in LEVELS:
            raise ValueError(f"{cell.name}: level {cell.level!r} is not one of {', '.join(LEVELS)}")
        pins = [a for step in cell.install for a in step if a.startswith(f"{cell.framework}==")]
        if pins and pins != [f"{cell.framework}=={cell.version}"]:
            raise ValueError(f"{cell.name} asks for {cell.version} and installs {', '.join(pins)}")
    return cells


def run_cell(cell: Cell, *, keep: bool = False) -> Outcome:
    """Builds the cell's environment, runs its tests up to the level asked, and removes the environment again."""
    started = time.monotonic()
    end = started + 60 * cell.minutes
    folder = CACHE / "cells" / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    python = folder / "venv" / "bin" / "python"
    env = environment(cell, folder)
    outcome = Outcome(cell.name, cell.framework, cell.version, cell.python, cell.level, "-", 0.0)

    def step(command: list[str]) -> tuple[int, str]:
        return run(command, log, env, end - time.monotonic())

    try:
        outcome.failure = install(cell, python, step)
        if not outcome.failure:
            levels = folder / "levels.jsonl"
            command = [str(python), "-m", "pytest", "-q", "-p", "levels", "-W", "ignore"]
            command += ["--continue-on-collection-errors", "-m", marks(cell.level)]
            status, output = step([*command, *cell.tests])
            rows = (
                [json.loads(line) for line in levels.read_text(encoding="utf-8").splitlines()]
                if levels.exists()
                else []
            )
            outcome.reached, outcome.tests, outcome.failure = judge(rows)
            if status and not outcome.failure:
                outcome.failure = last_line(output)
            if not outcome.failure and outcome.reached != cell.level:
                outcome.failure = f"no test of level {cell.level} ran"
        if cell.watch:
            outcome.signatures = signatures(python, cell, step)
    finally:
        kill_leftovers(cell.name)
        if not keep:
            shutil.rmtree(folder / "venv", ignore_errors=True)
    outcome.seconds = round(time.monotonic() - started, 1)
    return outcome


def environment(cell: Cell, folder: Path) -> dict[str, str]:
    """The variables of everything that runs in a cell."""
    paths = [str(ROOT / "ci"), *(str(ROOT / p) for p in cell.pythonpath)]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(CACHE / "wheels")),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        # Ray's sockets need short paths, and no cell may find the cluster of another.
        "RAY_TMPDIR": f"/tmp/gem-{cell.name}",
        "GEM_LEVELS": str(folder / "levels.jsonl"),
        "GEM_CELL": cell.name,
        **cell.env,
    }
    if cell.untested:
        env["GEM_ALLOW_UNTESTED"] = "1"
    env.pop("VIRTUAL_ENV", None)
    return env


def install(cell: Cell, python: Path, step: Any) -> str:
    """Returns what went wrong, or nothing."""
    interpreter = find_python(cell.python)
    if interpreter is None:
        return f"no Python {cell.python} on this machine"
    steps = [[interpreter, "-m", "venv", str(python.parents[1])]]
    steps += [[str(python), "-m", "pip", "install", "-q", *arguments] for arguments in cell.install]
    for command in steps:
        status, output = step(command)
        if status:
            return f"install: {last_line(output)}"
    if not cell.released:
        return ""
    probe = f"import importlib.metadata as m; print(m.version({cell.framework!r}))"
    status, output = step([str(python), "-c", probe])
    if status or output.strip() != cell.version:
        return f"{cell.framework} is {last_line(output)!r}, not {cell.version}"
    return ""


def find_python(version: str) -> str | None:
    """An interpreter of this minor version: on the path, this one, or one that pyenv has."""
    if sys.version_info[:2] == tuple(int(x) for x in version.split(".")):
        return sys.executable
    candidates = [Path(p) for p in (shutil.which(f"python{version}"),) if p]
    candidates += sorted(
        Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python")
    )
    for candidate in candidates:
        with contextlib.suppress(OSError):
            if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:  # a pyenv shim may fail
                return str(candidate)
    return None


def marks(level: str) -> str:
    """The pytest expression that leaves out levels above ``level``."""
    above = [lv.lower() for lv in LEVELS[LEVELS.index(level) + 1 :]]
    return " and ".join(["not browser", *(f"not {lv}" for lv in above)])


def judge(rows: list[dict[str, Any]]) -> tuple[str, str, str]:
    """What a cell's tests say: (level reached, counts, first failing line).

    A level is reached where it has a test, and no test of it or of a lower one failed or was skipped.
    """
    counts = Counter(r["outcome"] for r in rows)
    tests = ", ".join(f"{counts[k]} {k}" for k in ("passed", "failed", "skipped") if counts[k])
    bad = [r for r in rows if r["outcome"] != "passed"]
    failure = f"{bad[0]['outcome']}: {bad[0]['test'].rpartition('/')[2]}: {bad[0]['reason']}"[:240] if bad else ""
    reached = "-"
    for level in LEVELS:
        outcomes = {r["outcome"] for r in rows if r["level"].upper() == level}
        if outcomes - {"passed"}:
            break
        if outcomes:
            reached = level
    return reached, tests, failure


def run(command: list[str], log: Path, env: dict[str, str], timeout: float) -> tuple[int, str]:
    """Runs a command in the repository's root; returns its exit status (124 past the limit) and its output."""
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        begin = file.tell()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(max(1.0, timeout))
        except subprocess.TimeoutExpired:
            status = 124
            file.write(f"\ntime limit of the cell reached in: {' '.join(command)[:120]}\n".encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, log.read_bytes()[begin:].decode("utf-8", "replace")


def kill_leftovers(cell: str) -> None:
    """Ends what a cell left running (Ray's daemons live in sessions of their own) and removes Ray's folder."""
    mark = f"GEM_CELL={cell}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and mark in (process / "environ").read_bytes() + b"\0":
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(f"/tmp/gem-{cell}", ignore_errors=True)


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|E  )|.*Error:", line)]
    return (errors or lines or ["no output"])[-1][:200]


# -- early warning ---------------------------------------------------------------------------------------------------


def newest_release(distribution: str) -> str:
    """The newest release on the package index."""
    command = [sys.executable, "-m", "pip", "index", "versions", distribution]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(rf"{re.escape(distribution)} \(([^)]+)\)", done.stdout)
    if not found:
        raise RuntimeError(f"pip cannot list the versions of {distribution}: {last_line(done.stdout + done.stderr)}")
    return found.group(1)


_PROBE = """
import importlib, inspect, json, sys
out = {}
for name in sys.argv[1:]:
    module, _, path = name.partition(":")
    try:
        value = importlib.import_module(module)
        for part in filter(None, path.split(".")):
            value = getattr(value, part)
        out[name] = str(inspect.signature(value))
    except Exception as e:
        out[name] = f"{type(e).__name__}: {e}"[:200]
print("SIGNATURES" + json.dumps(out))
"""


def signatures(python: Path, cell: Cell, step: Any) -> dict[str, str]:
    """The signatures of what the adapter hangs on, in the installed version."""
    _, output = step([str(python), "-c", _PROBE, *cell.watch])
    found = re.search(r"^SIGNATURES(.*)$", output, re.MULTILINE)
    return json.loads(found.group(1)) if found else {}


def changed_signatures(cell: Cell, outcome: Outcome) -> Iterator[str]:
    """Yields what differs from the record of the versions that are served."""
    recorded = json.loads(SIGNATURES.read_text(encoding="utf-8")) if SIGNATURES.exists() else {}
    before = recorded.get(cell.framework, {})
    for name, signature in outcome.signatures.items():
        if name in before and before[name] != signature:
            yield f"{name} was {before[name]}, is {signature}"

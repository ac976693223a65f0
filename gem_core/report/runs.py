"""Reads run folders as they are found: of a run still going, cut short by a crash, or damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILES = ("run.json", "metrics.jsonl", "episodes.jsonl")
#: A line counts for at most this many bytes of the budget: its texts are cut before they enter the page.
_COUNTED_BYTES = 200_000


@dataclass
class Run:
    """A run folder's content."""

    path: Path
    #: The folder's name; with its parent's where two runs share it.
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    #: The lines of ``metrics.jsonl``.
    metrics: list[dict[str, Any]] = field(default_factory=list)
    #: The lines of ``episodes.jsonl``, thinned out evenly where there are too many.
    episodes: list[dict[str, Any]] = field(default_factory=list)
    #: How many episodes the file holds.
    recorded_episodes: int = 0
    #: What the reader of the report should know: lines left out and why.
    notes: list[str] = field(default_factory=list)


def read_run(path: str | Path, *, max_episodes: int = 5000, max_bytes: int = 96_000_000) -> Run:
    """Reads one run folder.

    A line that is not JSON (a crash cuts the last one short) is left out, and ``notes`` says so.

    Args:
        path: A folder as :class:`gem_core.run_folder.RunFolder` writes it.
        max_episodes: Most episodes to keep; of more every k-th, the last one always.
        max_bytes: Most bytes of episodes to keep, likewise.

    Raises:
        FileNotFoundError: no such folder, or none of the three files in it.
        ValueError: ``run.json`` is not a JSON object, no line of a JSONL file is JSON, or a limit is not positive.
    """
    if max_episodes < 1 or max_bytes < 1:
        raise ValueError(f"max_episodes and max_bytes must be positive, got {max_episodes} and {max_bytes}")
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"no run folder at {path}" + (" (it is a file)" if path.exists() else ""))
    present = [name for name in FILES if (path / name).is_file()]
    if not present:
        raise FileNotFoundError(f"{path} is no run folder: it holds none of {', '.join(FILES)}")
    run = Run(path, path.resolve().name)
    for name in FILES:
        if name not in present:
            run.notes.append(f"{name} is missing")
    if "run.json" in present:
        run.config = _read_config(path / "run.json")
    if "metrics.jsonl" in present:
        run.metrics = [row for _, row in _rows(path / "metrics.jsonl", 1, run.notes)]
    if "episodes.jsonl" in present:
        _read_episodes(path / "episodes.jsonl", run, max_episodes, max_bytes)
    return run


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError as e:
        raise ValueError(f"{path}: not JSON: {e}") from e
    if not isinstance(config, dict):
        raise ValueError(f"{path}: a JSON object is needed, this is {type(config).__name__}")
    return config


def _read_episodes(path: Path, run: Run, max_episodes: int, max_bytes: int) -> None:
    count = size = 0
    for line in _lines(path):
        if line.strip():
            count += 1
            size += min(len(line), _COUNTED_BYTES)
    run.recorded_episodes = count
    every = max(1, -(-count // max_episodes), -(-size // max_bytes))
    for number, row in _rows(path, every, run.notes):
        if isinstance(row.get("episode"), dict):
            run.episodes.append(row)
        else:
            run.notes.append(f"{path.name}, line {number}: left out, it has no episode")
    if every > 1:
        run.notes.append(f"{path.name} holds {count:,} episodes; every {_ordinal(every)} one is shown")


def _rows(path: Path, every: int, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers, every k-th counted from the last."""
    total = sum(1 for line in _lines(path) if line.strip())
    seen = good = bad = 0
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        seen += 1
        if (total - seen) % every:
            continue
        try:
            row = json.loads(line.decode("utf-8", "replace"))
            problem = None if isinstance(row, dict) else "it is no JSON object"
        except (ValueError, RecursionError):
            problem = "it is not JSON"
        if problem is None:
            good += 1
            yield number, row
            continue
        bad += 1
        cut = " (the last line: the run was cut short, or is still writing)" if seen == total else ""
        notes.append(f"{path.name}, line {number}: left out, {problem}{cut}")
    if bad > 1 and not good:
        raise ValueError(f"{path}: not one of its {bad} lines is a JSON object")


def _lines(path: Path) -> Iterator[bytes]:
    """Lines end at newlines only: JSON may hold U+2028 and its like unescaped."""
    with path.open("rb") as file:
        yield from file


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"

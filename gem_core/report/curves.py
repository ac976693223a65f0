"""Learning curves: one a run, merged into a mean and a band over the runs of a group."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Point:
    """One line of metrics."""

    step: float
    wall_s: float | None
    split: str
    env: str
    values: dict[str, float | None]


@dataclass
class Series:
    """One run's numbers by step; None where one was not recorded or not finite."""

    steps: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    def at(self, name: str, step: float) -> float | None:
        """The value at ``step``: recorded, or on the line between its two neighbours if both were; else None."""
        column = self.columns.get(name)
        if column is None:
            return None
        i = bisect.bisect_left(self.steps, step)
        if i < len(self.steps) and self.steps[i] == step:
            return column[i]
        if i == 0 or i == len(self.steps):
            return None
        before, after = column[i - 1], column[i]
        if before is None or after is None:
            return None
        return before + (after - before) * (step - self.steps[i - 1]) / (self.steps[i] - self.steps[i - 1])


Key = tuple[str, str]


def series_of(points: Iterable[Point]) -> dict[Key, Series]:
    """The series of each (split, env). Several lines of one step (batches between two updates) become their mean."""
    cells: dict[Key, dict[float, list[dict[str, float | None]]]] = {}
    for p in points:
        row = {**p.values, "wall_s": p.wall_s}
        cells.setdefault((p.split, p.env), {}).setdefault(p.step, []).append(row)
    out: dict[Key, Series] = {}
    for key, by_step in cells.items():
        steps = sorted(by_step)
        names = dict.fromkeys(name for rows in by_step.values() for row in rows for name in row)
        out[key] = Series(steps, {n: [_mean([r.get(n) for r in by_step[s]]) for s in steps] for n in names})
    return out


def group_curves(runs: Sequence[dict[Key, Series]]) -> list[dict[str, Any]]:
    """One curve a (split, env): mean, lowest and highest over the runs, at every step that any of them recorded.

    Returns:
        Dicts with ``split``, ``env``, ``step`` and ``wall_s`` (one number a point), ``n`` (runs that reached the
        step) and ``metrics``: ``{name: {"mean": [...], "low": [...], "high": [...]}}``, the band only where there
        are several runs.
    """
    out = []
    for split, env in dict.fromkeys(key for run in runs for key in run):
        series = [run[split, env] for run in runs if (split, env) in run]
        steps = sorted({s for one in series for s in one.steps})
        names = dict.fromkeys(name for one in series for name in one.columns if name != "wall_s")
        metrics: dict[str, dict[str, list[float | None]]] = {}
        for name in names:
            values = [[v for one in series if (v := one.at(name, s)) is not None] for s in steps]
            metrics[name] = {"mean": [_mean(v) for v in values]}
            if len(runs) > 1:
                metrics[name]["low"] = [min(v, default=None) for v in values]
                metrics[name]["high"] = [max(v, default=None) for v in values]
        out.append(
            {
                "split": split,
                "env": env,
                "step": steps,
                "wall_s": [_mean([one.at("wall_s", s) for one in series]) for s in steps],
                "n": [sum(one.steps[0] <= s <= one.steps[-1] for one in series) for s in steps],
                "metrics": metrics,
            }
        )
    return out


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None

"""Is one run better than another? Paired over the tasks that both played."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gem_core.evaluation.records import EpisodeRecord
from gem_core.evaluation.results import EvalResult, Intervals, task_columns
from gem_core.evaluation.statistics import Estimate, bootstrap_means, interval, sign_flip_p

#: What is compared where nobody says otherwise; those that both runs have.
DEFAULT_METRICS = ("success", "return", "turns", "sampled_tokens")


@dataclass(frozen=True)
class Difference:
    """``a - b`` of one metric."""

    #: ``"average"``: over the environments, all alike.
    env_id: str
    metric: str
    #: Tasks that both runs played.
    pairs: int
    a: float
    b: float
    #: With the paired bootstrap's interval.
    difference: Estimate
    #: Two-sided, by the paired permutation test (not corrected for several metrics or environments).
    p: float


@dataclass(frozen=True)
class Comparison:
    name_a: str
    name_b: str
    differences: list[Difference]
    #: What the reader should know: tasks that only one run played, say.
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.name_a,
            "b": self.name_b,
            "differences": [asdict(d) for d in self.differences],
            "notes": self.notes,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_markdown(self) -> str:
        from gem_core.evaluation.tables import comparison_table

        return comparison_table(self).markdown()

    def to_latex(self) -> str:
        from gem_core.evaluation.tables import comparison_table

        return comparison_table(self).latex()


def compare(
    a: EvalResult, b: EvalResult, metrics: Sequence[str] | None = None, intervals: Intervals | None = None
) -> Comparison:
    """Compares two runs on the tasks (environment and seed or row) that both of them played.

    A task's samples are averaged first, so the runs may have different numbers of samples.

    Args:
        a: One run.
        b: The other.
        metrics: None = :data:`DEFAULT_METRICS` that both have.
        intervals: See :class:`~gem_core.evaluation.results.Intervals`.

    Raises:
        ValueError: no task is shared, or a metric that a run does not have.
    """
    import numpy as np

    how = intervals or Intervals()
    name_a, name_b = (a.name, b.name) if a.name != b.name else (f"{a.name} (a)", f"{b.name} (b)")
    tasks_a, tasks_b = _by_task(a), _by_task(b)
    shared = [t for t in tasks_a if t in tasks_b]
    if not shared:
        raise ValueError(
            f"{name_a} and {name_b} share no task: they must have played the same environments with the same seeds"
        )
    notes = [
        f"{len(mine) - len(shared)} tasks that only {name} played are left out"
        for name, mine in ((name_a, tasks_a), (name_b, tasks_b))
        if len(mine) > len(shared)
    ]
    envs = list(dict.fromkeys(env for env, _ in shared))
    columns: dict[str, tuple[dict[str, list[float]], dict[str, list[float]]]] = {}
    for env in envs:
        keys = [t for t in shared if t[0] == env]
        columns[env] = task_columns([tasks_a[k] for k in keys]), task_columns([tasks_b[k] for k in keys])
    common = [m for m in columns[envs[0]][0] if all(m in x and m in y for x, y in columns.values())]
    chosen = [m for m in DEFAULT_METRICS if m in common] if metrics is None else list(metrics)
    if unknown := [m for m in chosen if m not in common]:
        raise ValueError(f"the runs do not both have the metric {unknown[0]!r}; they share {', '.join(common)}")
    found: list[Difference] = []
    over_envs: list[Difference] = []
    for number, metric in enumerate(chosen):
        pairs = [(env, np.array(x[metric]), np.array(y[metric])) for env, (x, y) in columns.items()]
        sides = [(env, x[ok], y[ok]) for env, x, y in pairs if (ok := ~(np.isnan(x) | np.isnan(y))).any()]
        diffs = [x - y for _, x, y in sides]
        rng = np.random.default_rng([how.seed, number])
        replicates = [bootstrap_means(d[:, None], how.resamples, rng)[:, 0] for d in diffs]
        for (env, x, y), d, r in zip(sides, diffs, replicates, strict=True):
            low, high = interval(r, how.confidence) if len(d) > 1 else (None, None)
            mean = Estimate(_mean(d), low, high, len(d))
            p = sign_flip_p([d], 10 * how.resamples, rng)
            found.append(Difference(env, metric, len(d), _mean(x), _mean(y), mean, p))
        if len(sides) > 1:
            low, high = interval(np.mean(replicates, axis=0), how.confidence)
            value = Estimate(_mean([_mean(d) for d in diffs]), low, high, len(sides))
            p = sign_flip_p(diffs, 10 * how.resamples, rng)
            means = [_mean([_mean(side[i]) for side in sides]) for i in (1, 2)]
            over_envs.append(Difference("average", metric, sum(map(len, diffs)), means[0], means[1], value, p))
    return Comparison(name_a, name_b, found + over_envs, notes)


def _by_task(result: EvalResult) -> dict[tuple[str, str], list[EpisodeRecord]]:
    tasks: dict[tuple[str, str], list[EpisodeRecord]] = {}
    for record in result.records:
        if not record.failed:
            tasks.setdefault((record.env_id, record.task), []).append(record)
    return tasks


def _mean(values: Any) -> float:
    return math.fsum(float(v) for v in values) / len(values)

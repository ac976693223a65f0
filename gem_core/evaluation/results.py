"""What came out of an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_core.evaluation.records import EpisodeRecord, iter_episodes
from gem_core.evaluation.statistics import Estimate, bootstrap_means, estimate, interval, pass_at_k

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gem_core.rollout import RolloutStats

#: Prefix of the shares of stop reasons among the metrics.
STOP = "stop/"


@dataclass(frozen=True)
class Intervals:
    """How confidence intervals are made."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        if self.resamples < 100:
            raise ValueError(f"resamples must be at least 100, got {self.resamples!r}")


@dataclass(frozen=True)
class EnvResult:
    """One environment's figures; failed episodes are counted, but in no mean."""

    env_id: str
    #: Different starts; the intervals are over these.
    tasks: int
    episodes: int
    failed: int
    #: ``success``, ``return``, ``turns``, ``sampled_tokens``, ``prompt_tokens``, ``tool_calls``, ``tool_errors``,
    #: ``avg@n`` and ``pass@k`` where there are several samples, ``stop/<reason>``; each the mean over tasks of the
    #: task's own mean.
    metrics: dict[str, Estimate]
    #: Bootstrap replicates of the metrics, shape (resamples, metrics); for averages.
    replicates: NDArray[np.float64] = field(repr=False, compare=False)


@dataclass
class EvalResult:
    """An evaluation's result; recomputed from its folder at any time by :meth:`read`."""

    config: dict[str, Any]
    records: list[EpisodeRecord]
    intervals: Intervals = field(default_factory=Intervals)
    #: Of the call that made this result; None where it was read from a folder.
    stats: RolloutStats | None = None
    #: Answers taken from disk instead of being paid for again, failed tries by reason, seconds held back.
    requests: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        order = {e: i for i, e in enumerate(self.config.get("env_ids", []))}
        ids = sorted({r.env_id for r in self.records}, key=lambda e: (order.get(e, len(order)), e))
        #: One for each environment that has episodes.
        self.envs = [
            summarize_env(e, [r for r in self.records if r.env_id == e], self.intervals, stream)
            for stream, e in enumerate(ids)
        ]
        #: Means over environments, all alike; only metrics that every environment has.
        self.average: dict[str, Estimate] = average(self.envs, self.intervals) if len(self.envs) > 1 else {}

    @classmethod
    def read(cls, folder: str | Path, intervals: Intervals | None = None) -> EvalResult:
        """Reads a folder that :func:`~gem_core.evaluation.evaluate` wrote, finished or not.

        Raises:
            FileNotFoundError: no such folder, or no evaluation in it.
            ValueError: a damaged file.
        """
        folder = Path(folder)
        config_path, episodes_path = folder / "run.json", folder / "episodes.jsonl"
        if not episodes_path.is_file():
            raise FileNotFoundError(f"{folder} holds no evaluation: there is no {episodes_path.name} in it")
        config = json.loads(config_path.read_text(encoding="utf-8")) if config_path.is_file() else {}
        records = [EpisodeRecord.of(e) for e in iter_episodes(episodes_path)]
        return cls(config, records, intervals or Intervals(), folder=folder)

    @property
    def name(self) -> str:
        """The policy's name."""
        policy = self.config.get("policy")
        name = policy.get("policy") if isinstance(policy, Mapping) else policy
        return str(name or (self.folder.name if self.folder else "?"))

    @property
    def episodes(self) -> int:
        return len(self.records)

    @property
    def failed(self) -> int:
        return sum(r.failed for r in self.records)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: ``config``, ``envs``, ``average``, ``episodes``, ``failed``, ``errors``, ``requests``."""
        return {
            "config": self.config,
            "confidence": self.intervals.confidence,
            "episodes": self.episodes,
            "failed": self.failed,
            "errors": self.errors(),
            "envs": [
                {
                    "env_id": e.env_id,
                    "tasks": e.tasks,
                    "episodes": e.episodes,
                    "failed": e.failed,
                    "metrics": {k: _estimate(v) for k, v in e.metrics.items()},
                }
                for e in self.envs
            ],
            "average": {k: _estimate(v) for k, v in self.average.items()},
            "requests": self.requests,
        }

    def errors(self) -> dict[str, int]:
        """How often each error ended an episode, the commonest first; at most 20."""
        counts: dict[str, int] = {}
        for record in self.records:
            if record.failed:
                text = (record.error or record.stop_reason)[:200]
                counts[text] = counts.get(text, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1])[:20])

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_markdown(self, metrics: Sequence[str] | None = None) -> str:
        from gem_core.evaluation.tables import result_table

        return result_table(self, metrics).markdown()

    def to_latex(self, metrics: Sequence[str] | None = None) -> str:
        """A ``tabular`` for the package booktabs."""
        from gem_core.evaluation.tables import result_table

        return result_table(self, metrics).latex()

    def save(self, folder: str | Path) -> None:
        """Writes ``results.json``, ``results.md`` and ``results.tex``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"json": self.to_json(), "md": self.to_markdown(), "tex": self.to_latex()}
        for ending, text in texts.items():
            (folder / f"results.{ending}").write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def summarize_env(env_id: str, records: Sequence[EpisodeRecord], intervals: Intervals, stream: int = 0) -> EnvResult:
    """The figures of one environment's episodes.

    Args:
        env_id: The environment.
        records: At least one.
        intervals: See :class:`Intervals`.
        stream: Different environments draw different numbers.
    """
    import numpy as np

    played = [r for r in records if not r.failed]
    tasks: dict[str, list[EpisodeRecord]] = {}
    for record in played:
        tasks.setdefault(record.task, []).append(record)
    columns = task_columns(list(tasks.values()))
    if not columns:
        empty = np.zeros((intervals.resamples, 0))
        return EnvResult(env_id, 0, len(records), len(records), {}, empty)
    rows = np.array(list(columns.values()), dtype=float).T
    replicates = bootstrap_means(rows, intervals.resamples, np.random.default_rng([intervals.seed, stream]))
    metrics = {name: estimate(rows[:, i], replicates[:, i], intervals.confidence) for i, name in enumerate(columns)}
    return EnvResult(env_id, len(tasks), len(records), len(records) - len(played), metrics, replicates)


def task_columns(tasks: Sequence[Sequence[EpisodeRecord]]) -> dict[str, list[float]]:
    """For each metric one number a task, the mean over its samples; NaN where a task has none.

    Where the environment judges success at all, an episode that was stopped before it did counts as not solved.
    """
    if not tasks:
        return {}
    everything = [r for t in tasks for r in t]
    columns: dict[str, list[float]] = {}
    if any(r.success is not None for r in everything):
        columns["success"] = [_mean([float(bool(r.success)) for r in t]) for t in tasks]
    columns["return"] = [_mean([r.total_reward for r in t]) for t in tasks]
    samples = max(len(t) for t in tasks)
    if samples > 1 and "success" in columns:
        columns[f"avg@{samples}"] = columns["success"]
        ks = sorted({*(2**i for i in range(samples.bit_length())), samples})
        for k in (k for k in ks if k <= samples):
            columns[f"pass@{k}"] = [
                pass_at_k(len(t), sum(bool(r.success) for r in t), k) if len(t) >= k else math.nan for t in tasks
            ]
    columns["turns"] = [_mean([float(r.turns) for r in t]) for t in tasks]
    for name in ("sampled_tokens", "prompt_tokens", "tool_calls", "tool_errors"):
        values = [[v for r in t if (v := getattr(r, name)) is not None] for t in tasks]
        if any(values):
            columns[name] = [_mean([float(v) for v in vs]) for vs in values]
    for reason in sorted({r.stop_reason for r in everything}):
        columns[f"{STOP}{reason}"] = [_mean([float(r.stop_reason == reason) for r in t]) for t in tasks]
    return columns


def average(envs: Sequence[EnvResult], intervals: Intervals) -> dict[str, Estimate]:
    """Means over environments; their intervals come from the environments' independent replicates."""
    import numpy as np

    with_figures = [e for e in envs if e.metrics]
    out: dict[str, Estimate] = {}
    for name in with_figures[0].metrics if with_figures else ():
        if not all(name in e.metrics for e in with_figures):
            continue
        value = _mean([e.metrics[name].value for e in with_figures])
        columns = [e.replicates[:, list(e.metrics).index(name)] for e in with_figures]
        low, high = interval(np.mean(columns, axis=0), intervals.confidence)
        out[name] = Estimate(value, low, high, len(with_figures))
    return out


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _estimate(e: Estimate) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(e).items()}

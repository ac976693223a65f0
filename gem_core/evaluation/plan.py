"""Which episodes an evaluation plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gem_core.core import Env, EnvWrapper, Info, check_seed
from gem_core.registration import WrapperFn, make, spec
from gem_core.rollout import Task

#: Tasks an environment where nobody says how many.
DEFAULT_EPISODES = 100


@dataclass(frozen=True)
class Plan:
    """The tasks, in the order they are started."""

    env_ids: list[str]
    #: The environments take turns, so that a partial evaluation covers all of them.
    tasks: list[Task]
    #: How many different starts each environment has, in the order of ``env_ids``.
    starts: list[int] = field(default_factory=list)


def plan_tasks(
    env_ids: str | Sequence[str],
    episodes: int | None = None,
    seeds: int | Sequence[int] | None = None,
    samples: int = 1,
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperFn] = (),
) -> Plan:
    """Lays out the tasks; the same arguments give the same tasks, and more episodes or samples only add to them.

    Args:
        env_ids: One or several ids.
        episodes: Different starts of each environment; None = the number of seeds, else all rows of a dataset or
            :data:`DEFAULT_EPISODES`.
        seeds: The seeds of the starts, or the first of them (0). A dataset's starts are its rows, every row once, in an
            order that follows from the first seed; explicit seeds are then numbers of rows.
        samples: Episodes from each start.
        kwargs: For the environments' constructors.
        wrappers: Applied in order to every environment.

    Raises:
        ValueError: an unknown id, a number below 1, seeds that repeat, more episodes than a dataset has rows.
    """
    ids = [spec(e).id for e in ([env_ids] if isinstance(env_ids, str) else env_ids)]
    for name, value in (("episodes", episodes), ("samples", samples), ("the number of environments", len(ids))):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"an environment is there twice: {', '.join(ids)}")
    options = dict(kwargs or {})
    per_env = [_starts(e, episodes, seeds, options) for e in ids]
    tasks = []
    for i in range(max(map(len, per_env))):
        for env_id, starts in zip(ids, per_env, strict=True):
            if i < len(starts):
                tasks += _samples(env_id, *starts[i], samples, options, tuple(wrappers))
    return Plan(ids, tasks, [len(s) for s in per_env])


class _OtherActions(EnvWrapper):
    """Random actions of a sample's own: those of the environment follow from its seed, which samples share."""

    def __init__(self, env: Env, sample: int) -> None:
        super().__init__(env)
        self._sample = sample

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        result = super().reset(seed, options)
        inner = self.unwrapped
        inner._action_seed, inner._action_rng = f"action:{seed}:{self._sample}", None
        return result


def different_random_samples(tasks: Sequence[Task]) -> list[Task]:
    """Tasks for the policy ``"random"``: the samples of a start play different actions."""
    out = []
    for task in tasks:
        sample = int(task.episode_id.rpartition(":")[2])
        more = (partial(_OtherActions, sample=sample),) if sample else ()
        out.append(replace(task, wrappers=(*task.wrappers, *more)))
    return out


def _samples(
    env_id: str, seed: int, row: int | None, samples: int, kwargs: dict[str, Any], wrappers: tuple[WrapperFn, ...]
) -> list[Task]:
    group = f"{env_id}:{seed}" if row is None else f"{env_id}:row{row}"
    return [
        Task(
            env_id,
            seed=seed,
            episode_id=f"{group}:{sample}",
            group_id=group,
            options=None if row is None else {"index": row},
            kwargs=kwargs,
            wrappers=wrappers,
        )
        for sample in range(samples)
    ]


def _starts(
    env_id: str, episodes: int | None, seeds: int | Sequence[int] | None, kwargs: dict[str, Any]
) -> list[tuple[int, int | None]]:
    """Seed and row (None: the seed alone makes the start) of each start."""
    size = _rows(env_id, kwargs)
    if seeds is not None and not isinstance(seeds, int):
        chosen = [check_seed(s) for s in seeds]
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"seeds must differ, got {chosen}; for several episodes from one start use samples=")
        if episodes is not None and episodes > len(chosen):
            raise ValueError(f"{episodes} episodes need as many seeds, got {len(chosen)}")
        chosen = chosen[:episodes]
        if size is not None and max(chosen, default=0) >= size:
            raise ValueError(f"{env_id} has rows 0 to {size - 1}, got {max(chosen)}")
        return [(s, None if size is None else s) for s in chosen]
    first = check_seed(0 if seeds is None else seeds)
    if size is None:
        return [(first + i, None) for i in range(episodes or DEFAULT_EPISODES)]
    from gem_core.envs.dataset_env import shuffled

    if episodes is not None and episodes > size:
        raise ValueError(
            f"{env_id} has {size} rows, {episodes} episodes were asked for; use samples= for several tries"
        )
    rows = [shuffled(i, size, f"evaluation:{first}") for i in range(episodes or size)]
    return [(row, row) for row in rows]


def _rows(env_id: str, kwargs: dict[str, Any]) -> int | None:
    """How many rows the environment's dataset has; None where it is not one on a dataset."""
    from gem_core.envs.dataset_env import DatasetEnv

    env = make(env_id, **kwargs)
    try:
        inner = env.unwrapped
        return len(inner.dataset) if isinstance(inner, DatasetEnv) else None
    finally:
        env.close()

"""Collecting many episodes at once: the rollout loop for those who own it (TRL, Oat, evaluation).

``concurrency`` episodes are in flight. Whatever prompts are ready are generated for together, whatever actions are
ready are sent to the environments, and finished episodes come out while the others go on: nobody waits for the
slowest. Environments run in an executor of :mod:`gem_core.vector`, so a step that hangs or a worker that dies costs one
episode, which comes out as failed with its reason.

::

    tasks = make_tasks("game:Wordle-v0", groups=64, group_size=8, seed=0)
    for episode in iter_rollout(tasks, policy, renderer, concurrency=128):
        ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gem_core.core import Env, check_seed
from gem_core.episode import Episode
from gem_core.policies import Policy
from gem_core.session import ContextMode, Generation, Limits, Prompt

if TYPE_CHECKING:
    from gem_core.chat import Renderer
    from gem_core.registration import WrapperFn

#: ``"done"``: as they finish. ``"group"``: a group's episodes one after the other, once all of them have finished.
#: ``"task"``: in the order of the tasks, whatever finishes first.
Order = Literal["done", "group", "task"]


class AsyncPolicy(Protocol):
    """As :class:`~gem_core.policies.Policy`, awaited; many calls may be under way at once."""

    def generate(self, prompts: list[Prompt]) -> Awaitable[list[Generation]]: ...


AnyPolicy = Policy | AsyncPolicy | Literal["random"]


@dataclass(frozen=True)
class Task:
    """One episode to play."""

    #: An id, or a function that builds the environment.
    env: str | Callable[[], Env]
    #: For ``reset``; None goes on with the environment's own generator.
    seed: int | None = None
    #: Unique in the run; "" = the task's number. Policies that draw by the episode's id draw the same for the same id.
    episode_id: str = ""
    #: Episodes of one group are compared with each other; they follow one another in the list of tasks. "" = alone.
    group_id: str = ""
    #: For ``reset``.
    options: dict[str, Any] | None = None
    #: For the constructor, where ``env`` is an id.
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperFn, ...] = ()
    #: For ``Episode.metadata``.
    metadata: Mapping[str, Any] = field(default_factory=dict)


def make_tasks(
    env: str | Sequence[str],
    groups: int,
    group_size: int = 1,
    *,
    seed: int = 0,
    tag: str = "",
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperFn] = (),
    metadata: Mapping[str, Any] | None = None,
) -> list[Task]:
    """``groups`` groups of ``group_size`` episodes from the same start.

    Args:
        env: One id, or several that the groups take in turn.
        groups: How many different starts.
        group_size: Episodes from each.
        seed: Group ``i`` has seed ``seed + i``. A training run gives each step seeds of its own.
        tag: Put before the episodes' ids, ``tag`` + ``env:seed:member``.
        kwargs: See :class:`Task`.
        wrappers: See :class:`Task`.
        metadata: See :class:`Task`.
    """
    ids = [env] if isinstance(env, str) else list(env)
    for name, value in (("groups", groups), ("group_size", group_size), ("env", len(ids))):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    check_seed(seed)
    tasks = []
    for i in range(groups):
        name = ids[i % len(ids)]
        group = f"{tag}{name}:{seed + i}"
        for member in range(group_size):
            tasks.append(
                Task(
                    name,
                    seed=seed + i,
                    episode_id=f"{group}:{member}",
                    group_id=group,
                    kwargs=dict(kwargs or {}),
                    wrappers=tuple(wrappers),
                    metadata=dict(metadata or {}),
                )
            )
    return tasks


@dataclass(frozen=True)
class RolloutOptions:
    """How episodes are collected; the functions of this module take these as keywords."""

    #: Episodes in flight.
    concurrency: int = 64
    order: Order = "done"
    #: Most prompts in one call of the policy.
    max_batch: int | None = None
    #: Finished episodes that may wait to be taken before no new ones are started; None = ``concurrency``.
    max_buffered: int | None = None
    limits: Limits | None = None
    context: ContextMode = "append"
    system_prompt: str | None = None
    length_stop: Literal["pass", "invalid"] = "pass"
    #: What an exception of the policy does: ``"raise"`` ends the rollout; ``"record"`` ends the episodes it was for as
    #: failed and goes on.
    on_policy_error: Literal["raise", "record"] = "raise"
    #: Finished episodes are appended here, one JSON object a line; those found here are not played again.
    log: str | Path | None = None
    #: Show a progress bar (with the package tqdm; without it, lines in the log).
    progress: bool = False
    #: See :class:`gem_core.vector.VectorOptions`.
    executor: Literal["inline", "thread", "process", "ray"] | None = None
    workers: int | None = None
    step_timeout_s: float | None = None
    reset_timeout_s: float | None = None
    start_method: Literal["forkserver", "spawn", "fork"] = "forkserver"
    ray_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "max_batch", "max_buffered"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if self.order not in ("done", "group", "task"):
            raise ValueError(f"order must be 'done', 'group' or 'task', got {self.order!r}")
        if self.on_policy_error not in ("raise", "record"):
            raise ValueError(f"on_policy_error must be 'raise' or 'record', got {self.on_policy_error!r}")


@dataclass
class RolloutStats:
    """What happened so far; read it at any time."""

    episodes: int = 0
    failed: int = 0
    #: Taken from the log instead of being played.
    resumed: int = 0
    turns: int = 0
    sampled_tokens: int = 0
    wall_s: float = 0.0
    #: Seconds in which no generation was under way because all episodes waited for environments.
    env_wait_s: float = 0.0
    #: Seconds in which all episodes waited for the policy.
    generation_wait_s: float = 0.0
    generations: int = 0
    prompts: int = 0

    @property
    def episodes_per_s(self) -> float:
        return (self.episodes - self.resumed) / self.wall_s if self.wall_s else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.sampled_tokens / self.wall_s if self.wall_s else 0.0

    @property
    def mean_batch(self) -> float:
        """Prompts in one call of the policy."""
        return self.prompts / self.generations if self.generations else 0.0


class Rollout:
    """A collection under way: iterate to take episodes, :meth:`close` to stop early.

    The work goes on in threads of its own while the caller uses an episode, until ``max_buffered`` of them wait.

    Args:
        tasks: What to play; read as slots become free, so it may be endless.
        policy: ``generate(list[Prompt]) -> list[Generation]``, plain or awaitable. A plain one is called from one
            thread, one batch at a time; an awaitable one gets a call for whatever is ready, many at once. ``"random"``
            draws well-formed actions where the environments are.
        renderer: See :class:`~gem_core.session.EpisodeSession`.
        options: See :class:`RolloutOptions`.
        loop: Where an awaitable policy runs; None = a loop of its own.

    Raises:
        ValueError: two tasks have the same episode id, or the log holds an episode of another task under an id.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        policy: AnyPolicy,
        renderer: Renderer | None = None,
        options: RolloutOptions | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        from gem_core.rollout_driver import Driver

        self.options = options or RolloutOptions()
        self.stats = RolloutStats()
        self._finished = False
        self._driver = Driver(tasks, policy, renderer, self.options, self.stats, loop)
        self._driver.start()

    def __iter__(self) -> Iterator[Episode]:
        return self

    def __next__(self) -> Episode:
        item = None if self._finished else self._driver.take()
        if isinstance(item, Episode):
            return item
        self._finished = True
        self._driver.stop()
        if item is not None:
            raise item
        raise StopIteration

    def close(self) -> None:
        """Stops; episodes that have not finished are dropped (a later run with the same log plays them again)."""
        self._finished = True
        self._driver.stop()

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def iter_rollout(
    tasks: Iterable[Task], policy: AnyPolicy, renderer: Renderer | None = None, **options: Any
) -> Iterator[Episode]:
    """Yields episodes; leaving the loop early stops the rollout. Keywords: see :class:`RolloutOptions`."""
    with Rollout(tasks, policy, renderer, _options(options)) as run:
        yield from run


def rollout(
    tasks: Iterable[Task], policy: AnyPolicy, renderer: Renderer | None = None, **options: Any
) -> list[Episode]:
    """Plays all tasks and returns their episodes, by default in the tasks' order."""
    return list(iter_rollout(tasks, policy, renderer, **{"order": "task", **options}))


async def arollout(
    tasks: Iterable[Task], policy: AnyPolicy, renderer: Renderer | None = None, **options: Any
) -> AsyncIterator[Episode]:
    """As :func:`iter_rollout`, for coroutines; an awaitable policy runs in the caller's event loop."""
    run = Rollout(tasks, policy, renderer, _options(options), loop=asyncio.get_running_loop())
    try:
        while True:
            episode = await asyncio.to_thread(next, run, None)
            if episode is None:
                return
            yield episode
    finally:
        # Not in this thread: the policy's last call may need the loop to come to its end.
        await asyncio.shield(asyncio.to_thread(run.close))


def _options(given: Mapping[str, Any]) -> RolloutOptions:
    known = [f.name for f in fields(RolloutOptions)]
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            raise ValueError(
                f"no rollout option is called {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}")
            )
    return RolloutOptions(**given)

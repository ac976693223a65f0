"""The environments of a rollout: how a task's is built, and which place is free for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gem_core.vector.executors import Executor, ExecutorName, VectorOptions, default_executor, make_executor
from gem_core.vector.host import EnvFactory
from gem_core.vector.types import AutoresetMode

if TYPE_CHECKING:
    from gem_core.rollout import RolloutOptions, Task

#: Kinds of environments whose factories are remembered.
_MOST_KINDS = 64


class Envs:
    """The places of an executor. Tasks of one kind share a factory, so that environments are used again."""

    def __init__(self) -> None:
        self.free: deque[int] = deque()
        self._factories: list[tuple[Task, EnvFactory]] = []
        self._built: dict[int, EnvFactory] = {}

    def factory(self, task: Task) -> EnvFactory:
        """The same object for tasks of the same environment, arguments and wrappers."""
        for known, factory in self._factories:
            if known.env is task.env or known.env == task.env:
                try:
                    if known.kwargs == task.kwargs and known.wrappers == task.wrappers:
                        return factory
                except ValueError:  # arrays among the arguments
                    continue
        factory = env_factory(task)
        self._factories.append((task, factory))
        del self._factories[:-_MOST_KINDS]
        return factory

    def take(self, factory: EnvFactory) -> int:
        """A free place; one that has such an environment already, if there is any."""
        if len(self._factories) > 1:
            for position, slot in enumerate(self.free):
                if self._built.get(slot) is factory:
                    del self.free[position]
                    return slot
        slot = self.free.popleft()
        self._built[slot] = factory
        return slot

    def executor(self, first: Sequence[Task], options: RolloutOptions) -> tuple[ExecutorName, Executor]:
        """Builds the executor, chosen by the first tasks' environments where it has no name, and frees all places."""
        factories = list({id(f): f for f in map(self.factory, first)}.values())
        costs = [f.cost for f in factories]
        vector = VectorOptions(
            executor=options.executor,
            workers=options.workers,
            autoreset_mode=AutoresetMode.DISABLED,
            step_timeout_s=options.step_timeout_s,
            reset_timeout_s=options.reset_timeout_s,
            start_method=options.start_method,
            ray_options=options.ray_options,
        )
        name = vector.executor or default_executor(costs, vector.limited)
        n = min(options.concurrency, len(first)) or 1
        self.free.extend(range(n))
        places: list[EnvFactory | None] = [factories[i % len(factories)] if factories else None for i in range(n)]
        return name, make_executor(name, places, vector, costs)


def env_factory(task: Task) -> EnvFactory:
    """How a task's environment is built.

    Raises:
        ValueError: an unknown id, or arguments for a function that takes none.
    """
    if isinstance(task.env, str):
        from gem_core.registration import spec

        return EnvFactory(spec(task.env), dict(task.kwargs), tuple(task.wrappers))
    if task.kwargs:
        raise ValueError("Task.kwargs are for environments by id; bind the arguments of a function with partial()")
    return EnvFactory(task.env, wrappers=tuple(task.wrappers))

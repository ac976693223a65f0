"""Environments that run while the caller does something else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_core.core import Env, Info
from gem_core.vector.executors import Executor, VectorOptions, default_executor, make_executor
from gem_core.vector.host import EnvFactory
from gem_core.vector.sync_vector_env import as_factories
from gem_core.vector.types import RAISED, RESULT, Command, Reply
from gem_core.vector.vector_env import Flags, Rewards, VectorEnv, VectorStep, arrays

#: As :data:`~gem_core.vector.vector_env.VectorStep`, with the indices of the environments last.
Received = tuple[list[str], Rewards, Flags, Flags, list[Info], list[int]]


class AsyncVectorEnv(VectorEnv):
    """Free-running: actions are sent, results come back as they are ready, in any order.

    ::

        observations, infos = envs.reset(seed=0)
        envs.send(policy(observations))
        while training:
            observations, rewards, terminations, truncations, infos, env_ids = envs.recv(min_ready=16)
            envs.send(policy(observations), env_ids)

    :meth:`step` is the lockstep form. :meth:`send_reset` starts resets whose results come from :meth:`recv`, too
    (reward 0.0, neither flag set). After :meth:`reset`, :meth:`recv` gives its results once more where it is the next
    call, so that a loop may begin with ``recv``.

    One thread may send while another receives.

    Args:
        env_ids: The id of each environment.
        env_fns: Functions that build them.
        options: See :class:`~gem_core.vector.executors.VectorOptions`; the executor is chosen from what the
            environments declare where it is None.
        seed: Environment ``i`` starts from ``seed + i`` where the first reset is given no seed.
    """

    def __init__(
        self,
        env_ids: Sequence[str],
        env_fns: Sequence[Callable[[], Env] | EnvFactory],
        options: VectorOptions | None = None,
        seed: int | None = None,
    ) -> None:
        options = options or VectorOptions()
        super().__init__(env_ids, len(env_fns), options.mode)
        factories = as_factories(env_fns, seed)
        costs = [f.cost for f in factories]
        self.executor_name = options.executor or default_executor(costs, options.limited)
        self._tickets = itertools.count(1)
        self._inflight: dict[int, int] = {}
        self._ready: list[Reply] = []
        self._reread: list[Reply] = []
        self._closed = False
        self._executor: Executor = make_executor(self.executor_name, factories, options, costs)
        try:
            self._ask([(i, "build", f) for i, f in enumerate(factories)])
        except BaseException:
            self.close()
            raise

    # -- free-running -----------------------------------------------------------------------------------------

    def send(self, actions: Sequence[str] | Mapping[int, str], env_ids: Sequence[int] | None = None) -> None:
        """Starts one step in each of some environments and returns at once.

        Args:
            actions: One a named environment, or a mapping from index to action.
            env_ids: Indices, such as :meth:`recv` returned; None = all, or the mapping's.

        Raises:
            RuntimeError: an environment still has a step or reset under way, or needs a reset first.
        """
        if env_ids is None:
            indices, chosen = self._actions(actions)
        else:
            indices = self._indices(env_ids)
            chosen = [actions[i] for i in indices] if isinstance(actions, Mapping) else list(actions)
            if isinstance(actions, str) or len(chosen) != len(indices):
                raise ValueError(f"{len(chosen)} actions for {len(indices)} environments")
        self._check_idle(indices)
        self._check_steppable(indices)
        self._reread.clear()
        self._submit([(i, "step", a) for i, a in zip(indices, chosen, strict=True)])

    def send_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
    ) -> None:
        """Starts resets and returns at once; arguments as for :meth:`reset`."""
        indices, seeds, options = self._resets(seed, options, env_ids)
        self._check_idle(indices)
        self._reread.clear()
        self._submit([(i, "reset", (s, options)) for i, s in zip(indices, seeds, strict=True)])

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> Received:
        """Returns everything that is ready, as soon as ``min_ready`` results are (or all that are under way).

        Args:
            min_ready: How many to wait for.
            timeout: Seconds after which what is there is returned, be it nothing.

        Returns:
            Observations, rewards, terminations, truncations, infos and the indices of their environments.

        Raises:
            RuntimeError: nothing is under way.
        """
        if min_ready < 1:
            raise ValueError(f"min_ready must be at least 1, got {min_ready!r}")
        if self._reread:
            replies, self._reread = self._reread, []
        else:
            if not self._inflight and not self._ready:
                raise RuntimeError("nothing is under way; send() actions or resets first")
            deadline = None if timeout is None else time.monotonic() + timeout
            while len(self._ready) < min_ready and self._inflight:
                wait = None if deadline is None else deadline - time.monotonic()
                if wait is not None and wait < 0:
                    break
                self._collect(wait)
            replies, self._ready = self._ready, []
        results = [r.value for r in replies]
        return (*arrays(results), [r.slot for r in replies])

    @property
    def num_running(self) -> int:
        """Environments with a step or reset under way."""
        return len(self._inflight)

    # -- lockstep ---------------------------------------------------------------------------------------------

    def step(self, actions: Sequence[str] | Mapping[int, str]) -> VectorStep:
        indices, chosen = self._actions(actions)
        self._check_idle(indices)
        self._check_steppable(indices)
        self._reread.clear()
        replies = self._ask([(i, "step", a) for i, a in zip(indices, chosen, strict=True)])
        return arrays([r.value for r in replies])

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
    ) -> tuple[list[str], list[Info]]:
        indices, seeds, options = self._resets(seed, options, env_ids)
        self._check_idle(indices)
        self._reread.clear()
        replies = self._ask([(i, "reset", (s, options)) for i, s in zip(indices, seeds, strict=True)])
        self._reread = list(replies)
        return [r.value[0] for r in replies], [r.value[4] for r in replies]

    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> list[Any]:
        indices = self._indices(env_ids)
        self._check_idle(indices)
        return [r.value for r in self._ask([(i, "call", (name, args, kwargs)) for i in indices])]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "_executor"):
            self._executor.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _submit(self, requests: Sequence[tuple[int, Any, Any]]) -> None:
        if self._closed:
            raise RuntimeError("this vector of environments is closed")
        commands = [Command(i, next(self._tickets), op, payload) for i, op, payload in requests]
        self._inflight.update((c.slot, c.ticket) for c in commands)
        self._executor.submit(commands)

    def _ask(self, requests: Sequence[tuple[int, Any, Any]]) -> list[Reply]:
        """Submits and waits for all, keeping other results for :meth:`recv`."""
        self._submit(requests)
        wanted = [r[0] for r in requests]
        rest = set(wanted)
        kept, self._ready = self._ready, []
        mine: dict[int, Reply] = {}
        while rest:
            self._collect(None)
            for reply in self._ready:
                if reply.slot in rest:
                    rest.discard(reply.slot)
                    mine[reply.slot] = reply
                else:
                    kept.append(reply)
            self._ready = []
        self._ready = kept
        for index in wanted:
            if mine[index].flag == RAISED:
                raise mine[index].value
        return [mine[i] for i in wanted]

    def _collect(self, timeout: float | None) -> None:
        replies = self._executor.poll(timeout)
        for reply in replies:
            self._inflight.pop(reply.slot, None)
            if reply.flag == RESULT:
                self._finish((reply.slot,), (reply.value,))
        self._ready += replies

    def _check_idle(self, indices: Sequence[int]) -> None:
        if self._inflight:
            for i in indices:
                if i in self._inflight:
                    raise RuntimeError(f"environment {i} still has a step or reset under way; recv() it first")

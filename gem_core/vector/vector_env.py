"""What every vector of environments offers."""

from __future__ import annotations

import abc
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gem_core.core import Info, StepTuple, check_seed
from gem_core.vector.host import over_message
from gem_core.vector.types import AutoresetMode

Rewards = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
#: Observations (a list of strings), rewards, terminations and truncations (arrays of shape (k,)) and infos (a list of
#: dicts) of the ``k`` environments that were stepped, in the order of the actions.
VectorStep = tuple[list[str], Rewards, Flags, Flags, list[Info]]


class VectorEnv(abc.ABC):
    """Several environments with one ``reset`` and one ``step``.

    A failed episode (an exception, a time limit, a dead worker) has reward 0.0, ``truncated`` and its reason in
    ``info["error"]``, see :class:`~gem_core.vector.types.EnvFault`; the others go on.

    Attributes:
        env_ids: The id of each environment.
        num_envs: How many there are.
        autoreset_mode: See :class:`~gem_core.vector.types.AutoresetMode`.
    """

    env_ids: list[str]
    num_envs: int
    autoreset_mode: AutoresetMode

    def __init__(self, env_ids: Sequence[str], num_envs: int, autoreset_mode: AutoresetMode) -> None:
        if num_envs < 1:
            raise ValueError("a vector needs at least one environment")
        if len(env_ids) != num_envs:
            raise ValueError(f"{len(env_ids)} ids for {num_envs} environments")
        self.env_ids = list(env_ids)
        self.num_envs = num_envs
        self.autoreset_mode = autoreset_mode
        #: Whether each environment may be stepped: False before its first reset and, without autoreset, at its end.
        self._steppable = [False] * num_envs

    @abc.abstractmethod
    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
    ) -> tuple[list[str], list[Info]]:
        """Starts new episodes.

        Args:
            seed: An int ``s`` seeds environment ``i`` with ``s + i``; a sequence gives one seed for each environment
                reset. None: the seeds the vector was made with at the first reset, then each goes on with its own
                generator.
            options: For every ``reset``; ``{"reset_mask": mask}`` of shape (num_envs,) chooses environments, as in
                Gymnasium.
            env_ids: Indices of the environments to reset; None = all.

        Returns:
            Observations and infos of the environments reset, in order.
        """

    @abc.abstractmethod
    def step(self, actions: Sequence[str] | Mapping[int, str]) -> VectorStep:
        """Plays one turn in every environment, or in those that a mapping names, and waits for all of them.

        Raises:
            ValueError: a wrong number of actions, or no such index.
            RuntimeError: an environment was never reset, or its episode is over and nothing resets it by itself.
        """

    @abc.abstractmethod
    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> list[Any]:
        """Calls a method of each environment (or reads an attribute), where the environment lives."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the environments and ends their threads, processes and actors. Safe to call twice."""

    def sample_random_action(self) -> list[str]:
        """One well-formed action for each environment."""
        return self.call("sample_random_action")

    def __len__(self) -> int:
        return self.num_envs

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- shared -----------------------------------------------------------------------------------------------

    def _indices(self, env_ids: Sequence[int] | None) -> list[int]:
        if env_ids is None:
            return list(range(self.num_envs))
        indices = [int(i) for i in env_ids]
        for i in indices:
            if not 0 <= i < self.num_envs:
                raise ValueError(f"no environment {i}; there are {self.num_envs}, numbered from 0")
        if len(set(indices)) != len(indices):
            raise ValueError(f"an environment is named twice in {indices}")
        return indices

    def _resets(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None, env_ids: Sequence[int] | None
    ) -> tuple[list[int], list[int | None], dict[str, Any] | None]:
        """Checks the arguments of a reset: indices, a seed for each, options."""
        if options and "reset_mask" in options:
            if env_ids is not None:
                raise ValueError("give env_ids or options['reset_mask'], not both")
            mask = options["reset_mask"]
            if len(mask) != self.num_envs:
                raise ValueError(f"options['reset_mask'] has length {len(mask)} for {self.num_envs} environments")
            env_ids = [i for i, chosen in enumerate(mask) if chosen]
            options = {k: v for k, v in options.items() if k != "reset_mask"} or None
        indices = self._indices(env_ids)
        if seed is None:
            return indices, [None] * len(indices), options
        if isinstance(seed, (Sequence, np.ndarray)):
            if len(seed) != len(indices):
                raise ValueError(f"{len(seed)} seeds for {len(indices)} environments")
            return indices, [None if s is None else check_seed(s) for s in seed], options
        base = check_seed(seed)
        return indices, [base + i for i in indices], options

    def _actions(self, actions: Sequence[str] | Mapping[int, str]) -> tuple[list[int], list[str]]:
        if isinstance(actions, Mapping):
            return self._indices(list(actions)), list(actions.values())
        if isinstance(actions, str) or len(actions) != self.num_envs:
            got = "a string" if isinstance(actions, str) else f"{len(actions)} actions"
            raise ValueError(
                f"step() takes one action for each of {self.num_envs} environments, or a dict of index to action for "
                f"some of them; got {got}"
            )
        return list(range(self.num_envs)), list(actions)

    def _check_steppable(self, indices: Sequence[int]) -> None:
        if len(indices) == self.num_envs and all(self._steppable):
            return
        for i in indices:
            if not self._steppable[i]:
                raise RuntimeError(over_message(i))

    def _finish(self, indices: Sequence[int], results: Sequence[StepTuple]) -> None:
        """Notes what may be stepped now."""
        if self.autoreset_mode is AutoresetMode.DISABLED:
            for i, result in zip(indices, results, strict=True):
                self._steppable[i] = not (result[2] or result[3])
        else:  # for good, from the first reset on
            for i in indices:
                self._steppable[i] = True


def arrays(results: Sequence[StepTuple]) -> VectorStep:
    """Results side by side."""
    if not results:
        return [], np.zeros(0), np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_), []
    observations, rewards, terminations, truncations, infos = zip(*results, strict=True)
    return (
        list(observations),
        np.frombuffer(array("d", rewards)),  # several times faster than np.array for few elements
        _flags(terminations),
        _flags(truncations),
        list(infos),
    )


def _flags(values: tuple[Any, ...]) -> Flags:
    try:
        return np.frombuffer(bytearray(values), dtype=np.bool_)
    except (TypeError, ValueError):  # not all of them Python's own
        return np.array(values, dtype=np.bool_)

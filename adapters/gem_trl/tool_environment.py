"""Environments for models that write tool calls: TRL's ``environment_factory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gem_core.core import Env
from gem_core.registration import make
from gem_core.session import with_suffix


class ToolEnvironment:
    """An environment whose one tool is :meth:`act`; TRL calls :meth:`reset`, the tool and :meth:`get_reward`.

    The rewards of all turns add up to one number a completion, as that interface asks for; for one advantage a turn use
    :class:`~gem_trl.GemGRPOTrainer`.

    Args:
        make_env: Builds the environment.
    """

    def __init__(self, make_env: Callable[[], Env]) -> None:
        self._env = make_env()
        self._reward = 0.0
        self._over = True

    def reset(self, seed: int | None = None, **row: Any) -> str:
        """Starts an episode; TRL appends what it returns to the prompt.

        Args:
            seed: The dataset's column of that name; rows of one group share it.
            **row: The dataset's other columns, which do not matter.
        """
        observation, info = self._env.reset(seed=seed)
        self._reward, self._over = 0.0, False
        return with_suffix(observation, info)

    def act(self, action: str) -> str:
        """Gives the environment your action and returns its answer.

        Args:
            action: The action, in the form that the task asks for.

        Returns:
            What the environment answers.
        """
        if self._over:
            return "The episode is over."
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._reward += float(reward)
        self._over = terminated or truncated
        return with_suffix(observation, info)

    def get_reward(self) -> float:
        """The sum of the episode's rewards."""
        return self._reward


def environment_factory(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], ToolEnvironment]:
    """For ``GRPOTrainer(environment_factory=...)``; the dataset gives ``prompt`` and, for fixed episodes, ``seed``.

    Args:
        env_id: Of :func:`gem_core.make`.
        env_kwargs: For it.
    """
    return lambda: ToolEnvironment(lambda: make(env_id, **(env_kwargs or {})))

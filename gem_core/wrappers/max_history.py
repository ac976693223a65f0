"""A sliding window over the episode."""

from __future__ import annotations

from gem_core.core import Env
from gem_core.wrappers.observation_wrapper import ObservationWrapper


class MaxHistory(ObservationWrapper):
    """Shows the newest observation and at most ``max_history_length`` earlier turns, as plain text.

    The same as :class:`ObservationWrapper` without a chat template, with a window that must be given.

    Args:
        env: The environment.
        max_history_length: Earlier turns shown; 0 shows the newest observation only.
        include_action: Show the agent's actions too.
    """

    def __init__(self, env: Env, max_history_length: int, include_action: bool = True) -> None:
        if max_history_length is None:
            raise ValueError("max_history_length must be a non-negative integer, got None")
        super().__init__(
            env,
            include_action=include_action,
            include_chat_template=False,
            max_history_length=max_history_length,
        )

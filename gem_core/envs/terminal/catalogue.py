"""The ids of the terminal tasks (``terminal:``)."""

from __future__ import annotations

from collections.abc import Iterable

from gem_core.envs.terminal.tasks import TASKS
from gem_core.registration import EnvSpec

_SPECS = {
    f"terminal:{name}-v0": EnvSpec(
        id=f"terminal:{name}-v0",
        entry_point="gem_core.envs.terminal.terminal_env:TerminalEnv",
        kwargs={"task": name, "max_turns": kind.max_turns},
        max_turns=kind.max_turns,
        reward_range=(0.0, 1.0),
        cost="waits",
        summary=kind.summary,
    )
    for name, kind in TASKS.items()
}


def list_ids() -> Iterable[str]:
    return list(_SPECS)


def find_spec(env_id: str) -> EnvSpec | None:
    return _SPECS.get(env_id)

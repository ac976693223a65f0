"""The ids of reasoning-gym's tasks (``rg:``): whatever the installed version has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gem_core.envs.reasoning_gym import task_names
from gem_core.registration import EnvSpec

# `composite` mixes other tasks and has none of its own.
_COMPOSITE = ("chain_sum", "leg_counting", "letter_counting", "number_sorting", "spell_backward")
_CONFIGS: dict[str, dict[str, Any]] = {
    "composite": {"datasets": [{"name": n, "weight": 1, "config": {}} for n in _COMPOSITE]}
}


def list_ids() -> Iterable[str]:
    return [f"rg:{name}" for name in task_names()]


def find_spec(env_id: str) -> EnvSpec | None:
    name = env_id.removeprefix("rg:")
    if name not in task_names():
        return None
    kwargs: dict[str, Any] = {"name": name}
    if name in _CONFIGS:
        kwargs["config"] = _CONFIGS[name]
    return EnvSpec(
        id=env_id,
        entry_point="gem_core.envs.reasoning_gym:ReasoningGymEnv",
        kwargs=kwargs,
        max_turns=1,
        reward_range=(0.0, 1.0),
        extra="math",
        cost="computes",
        summary=name.replace("_", " "),
    )

"""The ids of the language games (``game:``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gem_core.registration import EnvSpec

_MODULE = "gem_core.envs.game_env"


def _game(
    name: str, module_and_class: str, summary: str, variants: dict[str, dict[str, Any]], low: float = -0.1
) -> list[EnvSpec]:
    """One spec a variant; the key is the id's ending (``""`` for the bare ``-v0``)."""
    return [
        EnvSpec(
            id=f"game:{name}-v0{ending}",
            entry_point=f"{_MODULE}.{module_and_class}",
            kwargs=kwargs,
            max_turns=kwargs.get("max_turns"),
            reward_range=(low, 1.0),
            summary=summary,
        )
        for ending, kwargs in variants.items()
    ]


_SPECS: list[EnvSpec] = [
    *_game(
        "GuessTheNumber",
        "guess_the_number:GuessTheNumberEnv",
        "find a hidden number from higher/lower hints",
        {
            "": {"min_number": 1, "max_number": 20, "max_turns": 10},
            "-easy": {"min_number": 1, "max_number": 10, "max_turns": 4},
            "-hard": {"min_number": 1, "max_number": 50, "max_turns": 7},
            "-random": {"min_number": None, "max_number": None, "max_turns": None},
        },
    ),
]
_BY_ID = {s.id: s for s in _SPECS}


def list_ids() -> Iterable[str]:
    return list(_BY_ID)


def find_spec(env_id: str) -> EnvSpec | None:
    return _BY_ID.get(env_id)

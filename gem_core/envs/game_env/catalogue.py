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
    *_game(
        "Sudoku",
        "sudoku:SudokuEnv",
        "fill a Sudoku that has exactly one solution",
        {
            "-easy": {"clues": 10, "max_turns": 15, "scale": 4},
            "-hard": {"clues": 50, "max_turns": 50, "scale": 9},
            "-random": {"clues": None, "max_turns": None, "scale": None},
        },
    ),
    *_game(
        "Sokoban",
        "sokoban:SokobanEnv",
        "push boxes onto goals",
        {
            "-easy": {"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20},
            "-hard": {"dim_room": (8, 8), "num_boxes": 4, "max_turns": 50},
            "-random": {"dim_room": None, "num_boxes": None, "max_turns": None},
        },
    ),
    *_game(
        "Crosswords",
        "crosswords:CrosswordsEnv",
        "fill a crossword from its clues, a letter a turn",
        {
            "-easy": {"hardcore": False, "max_turns": 30, "num_words": 3},
            "-hard": {"hardcore": True, "max_turns": 40, "num_words": 3},
            "-random": {"hardcore": None, "max_turns": None, "num_words": None},
        },
    ),
    *_game(
        "WordSearch",
        "word_search:WordSearchEnv",
        "find words hidden in a grid of letters",
        {
            "-easy": {"num_words": 5, "max_turns": 20, "hardcore": False},
            "-hard": {"num_words": 5, "max_turns": 20, "hardcore": True},
            "-random": {"num_words": None, "max_turns": None, "hardcore": None},
        },
    ),
    *_game(
        "WikiGame",
        "wiki_game:WikiGameEnv",
        "get from one page to another over links",
        {
            "-easy": {"max_turns": 30, "min_distance": 2, "max_distance": 3},
            "-hard": {"max_turns": 15, "min_distance": 4, "max_distance": None},
        },
    ),
]
_BY_ID = {s.id: s for s in _SPECS}


def list_ids() -> Iterable[str]:
    return list(_BY_ID)


def find_spec(env_id: str) -> EnvSpec | None:
    return _BY_ID.get(env_id)

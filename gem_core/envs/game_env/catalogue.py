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
        "Mastermind",
        "mastermind:MastermindEnv",
        "find a code from counts of exact and misplaced digits",
        {
            "-easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10, "duplicate_numbers": False},
            "-hard": {"code_length": 4, "num_numbers": 8, "max_turns": 30, "duplicate_numbers": False},
            "-random": {"code_length": None, "num_numbers": None, "max_turns": None, "duplicate_numbers": False},
        },
    ),
    *_game(
        "Minesweeper",
        "minesweeper:MinesweeperEnv",
        "reveal every cell without a mine",
        {
            "-easy": {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
            "-hard": {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
            "-random": {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
        },
    ),
    *_game(
        "Wordle",
        "wordle:WordleEnv",
        "find a word from the marks of each guess",
        {
            "-easy": {"word_length": 3, "only_real_words": True, "max_turns": 15},
            "-hard": {"word_length": 5, "only_real_words": True, "max_turns": 25},
            "-random": {"word_length": None, "only_real_words": True, "max_turns": None},
        },
    ),
    *_game(
        "FifteenPuzzle",
        "fifteen_puzzle:FifteenPuzzleEnv",
        "slide tiles into order",
        {
            "-easy": {"num_rows": 2, "max_turns": 10},
            "-hard": {"num_rows": 4, "max_turns": 50},
            "-random": {"num_rows": None, "max_turns": None},
        },
    ),
    *_game(
        "Hangman",
        "hangman:HangmanEnv",
        "find a word letter by letter",
        {
            "-easy": {"word_length": 3, "hardcore": False, "max_turns": 10},
            "-hard": {"word_length": 7, "hardcore": False, "max_turns": 20},
            "-random": {"word_length": None, "hardcore": False, "max_turns": None},
        },
    ),
    *_game(
        "TowerofHanoi",
        "tower_of_hanoi:TowerofHanoiEnv",
        "move a tower of disks from A to C",
        {
            "-easy": {"num_disks": 3, "max_turns": 10},
            "-hard": {"num_disks": 5, "max_turns": 35},
            "-random": {"num_disks": None, "max_turns": None},
        },
    ),
    *_game(
        "Game2048",
        "game_2048:Game2048Env",
        "merge tiles up to a target",
        {
            "-easy": {"target_tile": 64, "max_turns": 50},
            "-hard": {"target_tile": 512, "max_turns": 50},
            "-extreme-hard": {"target_tile": 2048, "max_turns": 100},
            "-random": {"target_tile": None, "max_turns": None},
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

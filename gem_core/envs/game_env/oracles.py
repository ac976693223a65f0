"""Perfect play for the board games, with sight of the hidden answer: for tests, demonstrations and upper bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_core.core import Env
from gem_core.envs.game_env.crosswords import CrosswordsEnv
from gem_core.envs.game_env.page_stores import GraphStore
from gem_core.envs.game_env.sokoban import SokobanEnv
from gem_core.envs.game_env.sokoban_rooms import shortest_solution, steps
from gem_core.envs.game_env.sudoku import SudokuEnv
from gem_core.envs.game_env.wiki_game import WikiGameEnv
from gem_core.envs.game_env.word_search import WordSearchEnv

_WORDS = {"u": "up", "d": "down", "l": "left", "r": "right"}


def oracle_action(env: Env) -> str | None:
    """The next action of a perfect game from the env's current state; None where the state cannot be won.

    Args:
        env: A Sudoku, Sokoban, Crosswords, WordSearch or WikiGame environment (wrapped or not) after ``reset``.

    Raises:
        ValueError: another environment, or a WikiGame whose store is too large to search.
    """
    game = env.unwrapped
    for kind, oracle in _ORACLES.items():
        if isinstance(game, kind):
            move = oracle(game)
            return None if move is None else f"\\boxed{{{move}}}"
    raise ValueError(f"there is no oracle for {type(game).__name__}")


def _sudoku(game: SudokuEnv) -> str | None:
    if 0 not in game.board:
        return None
    cell = game.board.index(0)
    return f"{cell // game.scale + 1} {cell % game.scale + 1} {game.solution[cell]}"


def _sokoban(game: SokobanEnv) -> str | None:
    path = _known_path(game) or shortest_solution(game.fixed, game.width, game.boxes, game.player)
    return _WORDS[path[0]] if path else None


def _known_path(game: SokobanEnv) -> str:
    """The rest of the room's own solution, where the state lies on it."""
    step = steps(game.width)
    now = (game.player, sorted(game.boxes))
    player, boxes = game.start_player, set(game.start_boxes)
    for i, letter in enumerate(game.solution):
        if (player, sorted(boxes)) == now:
            return game.solution[i:]
        player += step[letter]
        if player in boxes:
            boxes.remove(player)
            boxes.add(player + step[letter])
    return ""


def _crosswords(game: CrosswordsEnv) -> str | None:
    cell = game.board.find("_")
    if cell < 0:
        return None
    return f"{cell // game.width} {cell % game.width} {game.solution[cell]}"


def _word_search(game: WordSearchEnv) -> str | None:
    for word, (row, col, down) in zip(game.words, game.places, strict=True):
        if word not in game.found:
            last = len(word) - 1
            return f"{row} {col} {row + last * down} {col + last * (1 - down)}"
    return None


def _wiki_game(game: WikiGameEnv) -> str | None:
    if not isinstance(game.store, GraphStore):
        raise ValueError(f"{type(game.store).__name__} is too large to search for a shortest path")
    path = game.store.shortest_path(game.current, game.target)
    return path[0] if path else None


_ORACLES: dict[type[Env], Callable[[Any], str | None]] = {
    SudokuEnv: _sudoku,
    SokobanEnv: _sokoban,
    CrosswordsEnv: _crosswords,
    WordSearchEnv: _word_search,
    WikiGameEnv: _wiki_game,
}

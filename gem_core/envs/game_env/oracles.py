"""Perfect play for the games, with sight of the hidden answer: for tests, demonstrations and upper bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_core.core import Env
from gem_core.envs.game_env.crosswords import CrosswordsEnv
from gem_core.envs.game_env.fifteen_puzzle import FifteenPuzzleEnv
from gem_core.envs.game_env.game_2048 import Game2048Env
from gem_core.envs.game_env.guess_the_number import GuessTheNumberEnv
from gem_core.envs.game_env.hangman import HangmanEnv
from gem_core.envs.game_env.mastermind import MastermindEnv
from gem_core.envs.game_env.minesweeper import MinesweeperEnv
from gem_core.envs.game_env.page_stores import GraphStore
from gem_core.envs.game_env.puzzle_search import best_slide, next_disk, next_slide
from gem_core.envs.game_env.sokoban import SokobanEnv
from gem_core.envs.game_env.sokoban_rooms import shortest_solution, steps
from gem_core.envs.game_env.sudoku import SudokuEnv
from gem_core.envs.game_env.tower_of_hanoi import TowerofHanoiEnv
from gem_core.envs.game_env.wiki_game import WikiGameEnv
from gem_core.envs.game_env.word_search import WordSearchEnv
from gem_core.envs.game_env.wordle import WordleEnv

_WORDS = {"u": "up", "d": "down", "l": "left", "r": "right"}


def oracle_action(env: Env) -> str | None:
    """The next action of a perfect game from the env's current state; None where the state cannot be won.

    Args:
        env: A game (wrapped or not) after ``reset``. 2048 is a game of chance: its move is a good one, no more.

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


def _minesweeper(game: MinesweeperEnv) -> str | None:
    safe = (k for k in range(game.rows * game.cols) if k not in game.mines and k not in game.shown)
    # Before the first reveal no mine is laid: begin in the middle, where most cells open.
    cell = next(safe, None) if game.mines else game.rows // 2 * game.cols + game.cols // 2
    return None if cell is None else f"reveal {cell // game.cols} {cell % game.cols}"


def _tower(game: TowerofHanoiEnv) -> str | None:
    move = next_disk(game.towers)
    return " ".join(move) if move else None


_ORACLES: dict[type[Env], Callable[[Any], str | None]] = {
    GuessTheNumberEnv: lambda game: str(game.target),
    MastermindEnv: lambda game: " ".join(map(str, game.code)),
    MinesweeperEnv: _minesweeper,
    WordleEnv: lambda game: game.word,
    HangmanEnv: lambda game: game.word,
    TowerofHanoiEnv: _tower,
    FifteenPuzzleEnv: lambda game: next_slide(game.cells),
    Game2048Env: lambda game: best_slide(game.cells),
    SudokuEnv: _sudoku,
    SokobanEnv: _sokoban,
    CrosswordsEnv: _crosswords,
    WordSearchEnv: _word_search,
    WikiGameEnv: _wiki_game,
}

"""Scripted play of the guessing games and puzzles, from the conversation alone."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gem_core.chat import Message
from gem_core.envs.game_env.mastermind import score
from gem_core.envs.game_env.puzzle_search import best_slide, next_disk, next_slide
from gem_core.envs.game_env.word_lists import words
from gem_core.envs.game_env.wordle import mark

if TYPE_CHECKING:
    from gem_core.experts import Expert


def _seen(messages: Sequence[Message]) -> str:
    """Everything the environment said."""
    return "\n".join(m["content"] for m in messages if m["role"] == "user")


def _box(content: str) -> str:
    return f"\\boxed{{{content}}}"


def guess_the_code(messages: Sequence[Message], rng: random.Random) -> str:
    """Mastermind: any code that agrees with every count so far."""
    text = _seen(messages)
    size = re.search(
        r"A code of (\d+) digits from 1 to (\d+) is hidden; its digits (are all different|may repeat)", text
    )
    if size is None:
        return _box("1 2")
    length, numbers = int(size[1]), range(1, int(size[2]) + 1)
    hints = [
        ([int(d) for d in guess.split()], (int(exact), int(misplaced)))
        for guess, exact, misplaced in re.findall(r"([\d ]+): (\d+) exact, (\d+) misplaced", text)
    ]
    every = itertools.permutations(numbers, length) if "all" in size[3] else itertools.product(numbers, repeat=length)
    fitting = [list(c) for c in every if all(score(list(c), guess) == counts for guess, counts in hints)]
    return _box(" ".join(map(str, rng.choice(fitting))))


def guess_the_word(messages: Sequence[Message], rng: random.Random) -> str:
    """Wordle: the word that agrees with every mark and shares most letters with the others that do."""
    text = _seen(messages)
    size = re.search(r"English word of (\d+) letters", text)
    pool = words(int(size[1]) if size else 5)
    for guess, marks in re.findall(r"([A-Z]+) is marked ([GYX]+)", text):
        pool = tuple(w for w in pool if mark(w, guess.lower()) == marks)
    if not pool:
        return _box("a")
    often = Counter(c for w in pool for c in set(w))
    return _box(max(pool, key=lambda w: (sum(often[c] for c in set(w)), w)))


def guess_the_letters(messages: Sequence[Message], rng: random.Random) -> str:
    """Hangman: the letter in most of the words that fit; the word once only one does."""
    text = messages[-1]["content"]
    pattern = re.search(r"^((?:[A-Z_] )*[A-Z_])(?: Letters tried: ([A-Z ]+)\.)?$", text, re.MULTILINE)
    if pattern is None:
        return _box("e")
    shown = pattern[1].lower().split()
    tried = set((pattern[2] or "").lower().split())
    pool = [
        w
        for w in words(len(shown))
        if all((s == c) if s != "_" else c not in tried for s, c in zip(shown, w, strict=True))
    ]
    if len(pool) == 1:
        return _box(pool[0])
    often = Counter(c for w in pool for c in set(w) - tried)
    for letter in "etaoinshrdlcumwfgypbvkjxqz":  # where no listed word fits
        often[letter] += 0
    return _box(max((c for c in often if c not in tried), key=lambda c: (often[c], c), default="e"))


def move_the_tower(messages: Sequence[Message], rng: random.Random) -> str:
    """TowerofHanoi: the shortest solution."""
    towers = {
        name: [] if disks == "-" else [int(d) for d in disks.split()]
        for name, disks in re.findall(r"^([ABC]): (-|[\d ]+)$", messages[-1]["content"], re.MULTILINE)
    }
    return _box(" ".join(next_disk(towers) or ("A", "C")))


def slide_tiles(messages: Sequence[Message], rng: random.Random) -> str:
    """FifteenPuzzle: a solution, a shortest one up to 3x3."""
    rows = re.findall(r"^((?:\s*(?:\d+|__))+)$", messages[-1]["content"], re.MULTILINE)
    cells = [0 if x == "__" else int(x) for row in rows for x in row.split()]
    return _box(next_slide(cells) or "up")


def merge_tiles(messages: Sequence[Message], rng: random.Random) -> str:
    """2048: many empty cells, large tiles in one corner."""
    rows = re.findall(r"^((?:\s*(?:\d+|\.)){4})$", messages[-1]["content"], re.MULTILINE)[-4:]
    cells = [0 if x == "." else int(x) for row in rows for x in row.split()]
    return _box(best_slide(cells) if len(cells) == 16 else "down")


def sweep_mines(messages: Sequence[Message], rng: random.Random) -> str:
    """Minesweeper: a cell that one number proves safe, else one that looks safest. Never flags."""
    lines = re.findall(r"^ ?\d+  ((?: ?[.F\d] ?)+)$", messages[-1]["content"], re.MULTILINE)
    grid = [line.split() for line in lines]
    hidden = [(r, c) for r, row in enumerate(grid) for c, x in enumerate(row) if x == "."]
    if not hidden:
        return _box("reveal 0 0")
    if len(hidden) == sum(map(len, grid)):
        return _box(f"reveal {len(grid) // 2} {len(grid[0]) // 2}")
    around = _constraints(grid)
    mines: set[tuple[int, int]] = set()
    safe: set[tuple[int, int]] = set()
    for _ in range(len(hidden)):
        before = len(mines), len(safe)
        for cells, number in around:
            left = cells - mines - safe
            if left and number - len(cells & mines) == len(left):
                mines |= left
            elif left and number == len(cells & mines):
                safe |= left
        if (len(mines), len(safe)) == before:
            break
    if safe:
        r, c = min(safe)
        return _box(f"reveal {r} {c}")
    risk = dict.fromkeys(hidden, 0.2)
    for cells, number in around:
        left = cells - mines
        for cell in left:
            risk[cell] = max(risk[cell], (number - len(cells & mines)) / len(left))
    r, c = min((cell for cell in hidden if cell not in mines), key=lambda cell: (risk[cell], cell), default=hidden[0])
    return _box(f"reveal {r} {c}")


def _constraints(grid: list[list[str]]) -> list[tuple[set[tuple[int, int]], int]]:
    """For each number: the hidden cells around it, and how many of them hold a mine."""
    out = []
    for r, row in enumerate(grid):
        for c, x in enumerate(row):
            if x in ".F":
                continue
            near = {
                (y, z)
                for y in range(max(0, r - 1), min(len(grid), r + 2))
                for z in range(max(0, c - 1), min(len(row), c + 2))
                if grid[y][z] in ".F"
            }
            if near:
                out.append((near, int(x)))
    return out


EXPERTS: dict[str, Expert] = {
    "Mastermind": guess_the_code,
    "Minesweeper": sweep_mines,
    "Wordle": guess_the_word,
    "FifteenPuzzle": slide_tiles,
    "Hangman": guess_the_letters,
    "TowerofHanoi": move_the_tower,
    "Game2048": merge_tiles,
}

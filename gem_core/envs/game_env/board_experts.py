"""Experts that play the board games and the WikiGame from the conversation alone, without sight of the answer.

Each has the signature of :data:`gem_core.experts.Expert`. What they read is the text that these games write: the last
board (``info["suffix"]``) must be part of the conversation, as :class:`~gem_core.session.EpisodeSession` makes it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from gem_core.chat import Message
from gem_core.envs.game_env import sudoku_boards
from gem_core.envs.game_env.crosswords import clue_table
from gem_core.envs.game_env.page_stores import GraphStore, PageNotFound, open_store
from gem_core.envs.game_env.sokoban_rooms import shortest_solution, steps
from gem_core.envs.game_env.word_search import vocabulary
from gem_core.envs.text_game import boxed_contents

_WORDS = {"u": "up", "d": "down", "l": "left", "r": "right"}


def solve_sudoku(messages: Sequence[Message], rng: random.Random) -> str:
    """Fills the first empty cell of the last board with the digit of its only solution."""
    rows = [re.findall(r"[0-9.]", line[4:]) for line in _last_block(messages, r" ?[0-9]  [0-9.][0-9. |]*")]
    n = len(rows)
    board = [0 if sign == "." else int(sign) for row in rows for sign in row]
    if n not in (4, 9) or len(board) != n * n:
        raise ValueError("the conversation shows no Sudoku board")
    solution = sudoku_boards.solve(board, n, limit=1)[0]
    cell = board.index(0)
    return f"\\boxed{{{cell // n + 1} {cell % n + 1} {solution[cell]}}}"


#: Room, boxes and player -> the moves that are left, for the states on solutions found lately.
_known: dict[tuple[str, tuple[int, ...], int], str] = {}
_MOST_KNOWN = 5000


def solve_sokoban(messages: Sequence[Message], rng: random.Random) -> str:
    """The next move of a shortest solution of the last room; any move where the room is lost."""
    rows = [line.split() for line in _last_block(messages, r"[#_OX√PS]( [#_OX√PS])+")]
    if not rows:
        raise ValueError("the conversation shows no Sokoban room")
    signs, width = "".join("".join(row) for row in rows), len(rows[0])
    fixed = signs.translate(str.maketrans("X√PS", "_O_O"))
    boxes = tuple(i for i, sign in enumerate(signs) if sign in "X√")
    player = next(i for i, sign in enumerate(signs) if sign in "PS")
    moves = _known.get((fixed, boxes, player)) or shortest_solution(fixed, width, boxes, player)
    if not moves:
        return f"\\boxed{{{rng.choice(list(_WORDS.values()))}}}"
    if len(_known) > _MOST_KNOWN:
        _known.clear()
    player += steps(width)[moves[0]]
    pushed = {player: player + steps(width)[moves[0]]}
    _known[fixed, tuple(sorted(pushed.get(b, b) for b in boxes)), player] = moves[1:]
    return f"\\boxed{{{_WORDS[moves[0]]}}}"


def solve_crossword(messages: Sequence[Message], rng: random.Random) -> str:
    """The first missing letter, from the clue table."""
    rows = [line[5:].split("  ") for line in _last_block(messages, r" ?[0-9]+   [A-Z_.](  [A-Z_.])*")]
    words = {clue: word for hard in (False, True) for word, clue in clue_table(hard).items()}
    pattern = r"[0-9]+ (across|down), [0-9]+ letters from row ([0-9]+), column ([0-9]+): (.+)"
    for way, row, col, clue in re.findall(pattern, _last_text(messages, pattern)):
        for i, letter in enumerate(words[clue]):
            r, c = (int(row) + i, int(col)) if way == "down" else (int(row), int(col) + i)
            if rows[r][c] == "_":
                return f"\\boxed{{{r} {c} {letter}}}"
    raise ValueError("the conversation shows no crossword with a letter missing")


def search_words(messages: Sequence[Message], rng: random.Random) -> str:
    """The longest word of the vocabulary that stands in the grid and has not been tried; long words are no accident."""
    text = _last_text(messages, r"Found [0-9]+ of [0-9]+ words")
    rows = [re.findall(r"[A-Z]", line[3:]) for line in _block(text, r" ?[0-9]+ [ \[][A-Z].*")]
    answers = (message["content"] for message in messages if message["role"] == "assistant")
    tried = {tuple(re.findall(r"[0-9]+", box)) for answer in answers for box in boxed_contents(answer)}
    listed = re.search(r"Found [0-9]+ of [0-9]+ words: (.*?)\. Turn", text)
    found = set(listed[1].split(", ")) if listed else set()
    columns = list(zip(*rows, strict=True))
    best: tuple[int, tuple[str, ...]] = (0, ())
    for down, lines in ((False, rows), (True, columns)):
        for i, line in enumerate(lines):
            for start, end, word in _words_in("".join(line)):
                cells = (start, i, end, i) if down else (i, start, i, end)
                guess = tuple(map(str, cells))
                if word not in found and guess not in tried:
                    best = max(best, (len(word), guess))
    return f"\\boxed{{{' '.join(best[1] or ('0', '0', '0', '0'))}}}"


def _words_in(line: str) -> Iterator[tuple[int, int, str]]:
    known = _all_words()
    for start in range(len(line)):
        for end in range(start + 3, len(line) + 1):
            if line[start:end] in known:
                yield start, end - 1, line[start:end]


@cache
def _all_words() -> frozenset[str]:
    return frozenset(vocabulary(False)) | frozenset(vocabulary(True))


def follow_links(messages: Sequence[Message], rng: random.Random) -> str:
    """The next link of a shortest way in the built-in graph; a random link of a page that it does not have."""
    pattern = r'Page: "(.*?)"\. .*\nLinks: (.*)\nTarget: "(.*?)"\. Turn'
    found = re.findall(pattern, _last_text(messages, pattern))
    page, links, target = found[-1]
    store = open_store(None)
    assert isinstance(store, GraphStore)
    try:
        path = store.shortest_path(page, target)
    except PageNotFound:
        path = None
    return f"\\boxed{{{path[0] if path else rng.choice(links.split('; '))}}}"


def _last_text(messages: Sequence[Message], pattern: str) -> str:
    for message in reversed(messages):
        if message["role"] == "user" and re.search(pattern, message["content"]):
            return message["content"]
    raise ValueError("the conversation shows no state of this game")


def _last_block(messages: Sequence[Message], line: str) -> list[str]:
    """The last lines of the form ``line`` in the last message that has some."""
    return _block(_last_text(messages, f"(?m)^{line}$"), line)


def _block(text: str, line: str) -> list[str]:
    """The last run of lines of the form ``line``; rules between the boxes of a Sudoku do not end a run."""
    block: list[str] = []
    for one in reversed(text.split("\n")):
        if re.fullmatch(line, one):
            block.append(one)
        elif block and not re.fullmatch(r" *[-+]+", one):
            break
    return block[::-1]


EXPERTS: dict[str, Callable[[Sequence[Message], random.Random], str]] = {
    "Sudoku": solve_sudoku,
    "Sokoban": solve_sokoban,
    "Crosswords": solve_crossword,
    "WordSearch": search_words,
    "WikiGame": follow_links,
}

"""Crosswords: valid layouts, rewards, the clue table."""

from __future__ import annotations

import random

import pytest

from gem_core.envs.game_env.crosswords import CrosswordsEnv, clue_table, lay_out


def runs(env: CrosswordsEnv) -> list[tuple[str, int, int, bool]]:
    """Every run of two or more letters in the grid: letters, row, column, down."""
    found = []
    rows = [env.solution[r * env.width : (r + 1) * env.width] for r in range(env.height)]
    for down, lines in ((False, rows), (True, ["".join(column) for column in zip(*rows, strict=True)])):
        for i, line in enumerate(lines):
            at = 0
            for part in line.split("."):
                if len(part) > 1:
                    found.append((part, at, i, True) if down else (part, i, at, False))
                at += len(part) + 1
    return found


@pytest.mark.parametrize(
    ("hard", "words", "turns", "games"),
    [(False, 3, 30, 150), (True, 3, 40, 150), (False, 8, 60, 40), (True, 40, 400, 4)],
)
def test_every_run_of_letters_is_a_word_with_its_clue(hard: bool, words: int, turns: int, games: int) -> None:
    env = CrosswordsEnv(hard, turns, words)
    table = clue_table(hard)
    for seed in range(games):
        env.reset(seed=seed)
        seen = runs(env)
        assert len(seen) == words == len(env.clues)
        listed = {(row, col, way == "down"): (length, clue) for _, way, row, col, length, clue in env.clues}
        for word, row, col, down in seen:
            assert listed[row, col, down] == (len(word), table[word])
        assert len({word for word, *_ in seen}) == words
        assert env.board.count("_") <= turns
        letters = sum(len(word) for word, *_ in seen)
        assert letters - env.board.count("_") >= words - 1  # every word after the first crosses another


def test_numbers_follow_reading_order() -> None:
    env = CrosswordsEnv(False, 60, 6)
    for seed in range(20):
        env.reset(seed=seed)
        starts = [(number, row, col) for number, _, row, col, _, _ in env.clues]
        assert starts == sorted(starts)
        assert {n for n, *_ in starts} == set(range(1, len({(r, c) for _, r, c in starts}) + 1))


def test_words_that_cannot_cross_are_set_apart() -> None:
    placed = lay_out(random.Random(0), ("AAA", "BBBB"), 2, None)
    assert sorted(p.word for p in placed) == ["AAA", "BBBB"]
    cells = [
        cell for p in placed for cell in ((p.row + i * p.down, p.col + i * (not p.down)) for i in range(len(p.word)))
    ]
    assert len(set(cells)) == 7
    assert min(r for r, _ in cells) == 0 == min(c for _, c in cells)


def test_letters_are_kept_within_the_turns_where_the_words_allow_it() -> None:
    env = CrosswordsEnv(False, 12, 3)
    for seed in range(60):
        env.reset(seed=seed)
        assert env.board.count("_") <= 12
    env = CrosswordsEnv(False, 5, 3)  # impossible: still a crossword
    env.reset(seed=0)
    assert len(runs(env)) == 3


@pytest.mark.parametrize(("hard", "at_least", "longest"), [(False, 300, 9), (True, 200, 12)])
def test_the_clue_table_is_sound(hard: bool, at_least: int, longest: int) -> None:
    table = clue_table(hard)
    assert len(table) >= at_least
    assert len(set(table.values())) == len(table)
    for word, clue in table.items():
        assert word.isascii()
        assert word.isalpha()
        assert word.isupper()
        assert 3 <= len(word) <= longest
        assert 5 < len(clue) <= 80
        assert word.lower() not in clue.lower(), word
    assert not set(clue_table(True)) & set(clue_table(False))


def test_rewards() -> None:
    env = CrosswordsEnv(False, 30, 3)
    env.reset(seed=0)
    total = env.board.count("_")
    cell, outside = env.board.index("_"), env.board.index(".")
    at, letter = f"{cell // env.width} {cell % env.width}", env.solution[cell]
    wrong = "A" if letter != "A" else "B"
    table = [
        (f"\\boxed{{{at} {wrong}}}", 0.0, True),
        (f"\\boxed{{{outside // env.width} {outside % env.width} E}}", 0.0, False),
        (f"\\boxed{{{env.height} 0 E}}", 0.0, False),
        (f"\\boxed{{0 {env.width} E}}", 0.0, False),
        (f"\\boxed{{{at} {letter.lower()}}}", 1 / total, True),
        (f"\\boxed{{{at} {letter}}}", 0.0, False),  # filled before
    ]
    for action, reward, legal in table:
        _, got, terminated, truncated, info = env.step(action)
        assert (got, terminated, truncated, info["action_is_valid"]) == (pytest.approx(reward), False, False, legal)
    assert env.board[cell] == letter
    assert all(str(clue) in info["suffix"] for *_, clue in env.clues)
    _, reward, terminated, truncated, _ = env.step("\\boxed{0 0 AB}")
    assert (reward, terminated, truncated) == (-0.1, True, False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_words": 0}, "num_words"),
        ({"num_words": 10_000}, "num_words=10000"),
        ({"num_words": 340, "hardcore": None}, "num_words=340"),
        ({"hardcore": "yes"}, "hardcore"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        CrosswordsEnv(**arguments)  # type: ignore[arg-type]

"""Word search: words placed across or down, rewards, parameters."""

from __future__ import annotations

import random

import pytest

from gem_core.envs.game_env.word_search import WordSearchEnv, hide_words


def read(letters: str, side: int, row: int, col: int, down: int, length: int) -> str:
    return "".join(letters[(row + i * down) * side + col + i * (1 - down)] for i in range(length))


def board(env: WordSearchEnv, rows: list[str], words: list[str]) -> None:
    """Puts a hand-made grid into an environment that has been reset."""
    env.side, env.letters, env.words = len(rows), "".join(rows), words
    env.places, env.found, env.marked, env.guesses = [], [], [], []


@pytest.mark.parametrize(("hard", "count"), [(False, 5), (True, 5), (True, 1), (False, 30), (True, 100)])
def test_every_word_stands_where_it_was_hidden(hard: bool, count: int) -> None:
    env = WordSearchEnv(hard, 20, count)
    for seed in range(60 if count <= 5 else 5):
        env.reset(seed=seed)
        assert len(set(env.words)) == count == len(env.places)
        assert len(env.letters) == env.side**2
        assert env.letters.isalpha()
        assert env.letters.isupper()
        for word, (row, col, down) in zip(env.words, env.places, strict=True):
            assert down in (0, 1)
            assert read(env.letters, env.side, row, col, down, len(word)) == word
        if count == 5:
            least = round(1.5 * max(map(len, env.words)))
            assert env.side in (least, least + 1)


def test_places_are_varied_and_words_cross() -> None:
    rng = random.Random(0)
    places, ways, crossed = set(), [0, 0], 0
    for _ in range(100):
        _, _, found = hide_words(rng, ["STONE", "NOTES", "TONE"])
        for row, col, down in found:
            places.add((row, col))
            ways[down] += 1
        cells = [
            (row + i * down, col + i * (1 - down))
            for (row, col, down), word in zip(found, ["STONE", "NOTES", "TONE"], strict=True)
            for i in range(len(word))
        ]
        crossed += len(set(cells)) < len(cells)
    assert len(places) > 40
    assert min(ways) > 100
    assert 30 < crossed < 100


def test_a_crowded_square_grows_until_all_fit() -> None:
    words = ["".join(random.Random(i).choices("QXZJV", k=4)) for i in range(60)]
    side, letters, places = hide_words(random.Random(0), words)
    for word, (row, col, down) in zip(words, places, strict=True):
        assert read(letters, side, row, col, down, 4) == word


def test_rewards() -> None:
    env = WordSearchEnv(False, 20, 3)
    env.reset(seed=0)
    board(env, ["CATX", "ODOG", "WXEX", "DOGX"], ["CAT", "COW", "DOG"])
    table = [
        ("\\boxed{0 0 0 2}", 1 / 3, True),  # CAT
        ("\\boxed{0 2 0 0}", 0.0, False),  # the same guess from the other end
        ("\\boxed{0 0 1 1}", 0.0, False),  # neither across nor down
        ("\\boxed{0 0 0 4}", 0.0, False),  # off the grid
        ("\\boxed{0 0 0 1}", 0.0, True),  # CA
        ("\\boxed{0 0 0 1}", 0.0, False),  # repeated
        ("\\boxed{0 3 0 3}", 0.0, True),  # one letter
        ("\\boxed{1 3 1 1}", 1 / 3, True),  # DOG, from its end
        ("\\boxed{3 0 3 2}", 0.0, False),  # DOG again, elsewhere
    ]
    for action, reward, legal in table:
        _, got, terminated, truncated, info = env.step(action)
        assert (got, terminated, truncated, info["action_is_valid"]) == (pytest.approx(reward), False, False, legal), (
            action
        )
    assert env.render().splitlines()[1:3] == [" 0 [C][A][T] X", " 1  O [D][O][G]"]
    _, reward, terminated, _, info = env.step("\\boxed{0 0 2 0}")
    assert (reward, terminated, info["success"]) == (pytest.approx(1 / 3), True, True)


def test_a_hidden_word_counts_wherever_it_stands() -> None:
    for action in ("\\boxed{1 1 1 3}", "\\boxed{3 0 3 2}"):
        env = WordSearchEnv(False, 20, 2)
        env.reset(seed=0)
        board(env, ["CATX", "XDOG", "XXEX", "DOGX"], ["CAT", "DOG"])
        assert env.step(action)[1] == 0.5


def test_words_are_named_only_on_request() -> None:
    env = WordSearchEnv(False, 20, 5)
    text, info = env.reset(seed=0)
    assert not any(word in text + info["suffix"].split("Found")[1] for word in env.words)
    text, _ = WordSearchEnv(False, 20, 5, show_words=True).reset(seed=0)
    assert all(word in text for word in env.words)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_words": 0}, "num_words"),
        ({"num_words": 101}, "num_words=101"),
        ({"hardcore": 2}, "hardcore"),
        ({"max_turns": "20"}, "max_turns"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        WordSearchEnv(**arguments)  # type: ignore[arg-type]

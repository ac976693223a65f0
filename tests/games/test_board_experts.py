"""Experts that play the board games from the conversation alone."""

from __future__ import annotations

import random

import pytest

import gem_core as gem
from gem_core.envs.game_env.board_experts import EXPERTS
from gem_core.session import with_suffix


def play(env: gem.Env, name: str, seed: int, one_message: bool = False) -> tuple[float, bool]:
    """The return and success of one episode; ``one_message`` puts the whole history into a single user message."""
    text, info = env.reset(seed=seed)
    messages = [{"role": "user", "content": with_suffix(text, info)}]
    total, done = 0.0, False
    while not done:
        history = messages
        if one_message:
            history = [{"role": "user", "content": "\n".join(m["content"] for m in messages)}]
        action = EXPERTS[name](history, random.Random(seed))
        text, reward, terminated, truncated, info = env.step(action)
        assert info["action_is_valid"]
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": with_suffix(text, info)}]
        total += reward
        done = terminated or truncated
    return total, info["success"]


@pytest.mark.parametrize("one_message", [False, True])
@pytest.mark.parametrize(
    ("name", "variant", "seeds"),
    [
        ("Sudoku", "easy", 5),
        ("Sudoku", "hard", 2),
        ("Sokoban", "easy", 8),
        ("Crosswords", "easy", 5),
        ("Crosswords", "hard", 5),
        ("WikiGame", "easy", 5),
        ("WikiGame", "hard", 5),
    ],
)
def test_experts_play_perfect_games(name: str, variant: str, seeds: int, one_message: bool) -> None:
    env = gem.make(f"game:{name}-v0-{variant}")
    for seed in range(seeds):
        assert play(env, name, seed, one_message) == (pytest.approx(1.0), True)


@pytest.mark.parametrize("variant", ["easy", "hard"])
def test_the_word_search_expert_finds_most_words(variant: str) -> None:
    env = gem.make(f"game:WordSearch-v0-{variant}")
    returns = [play(env, "WordSearch", seed)[0] for seed in range(10)]
    assert sum(returns) / len(returns) > 0.8


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_a_conversation_of_another_game_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the conversation shows no"):
        EXPERTS[name]([{"role": "user", "content": "Guess a number between 1 and 5."}], random.Random(0))

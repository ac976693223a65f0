"""What every game promises, id by id."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import ScriptEnv

import gem_core as gem
from gem_core.envs.game_env.oracles import oracle_action

IDS = gem.list_envs("game:*")
#: Won from any start within the turn limit by the oracle; the others are dealt a board near the end below.
NEAR_THE_END = {
    "game:FifteenPuzzle-v0-hard": {"size": 4, "cells": [*range(1, 12), 0, 13, 14, 15, 12]},
    "game:FifteenPuzzle-v0-random": {"size": 3, "cells": [1, 2, 3, 4, 0, 6, 7, 5, 8]},
    "game:Game2048-v0-hard": {"cells": [256, 256, *[0] * 14]},
    "game:Game2048-v0-extreme-hard": {"cells": [1024, 1024, *[0] * 14]},
}
ODD_ACTIONS = [
    "",
    "x",
    "\\boxed{",
    "\\boxed{}",
    "\\boxed{   }",
    "\\boxed{{1 1 1}}",
    "\\boxed{1 1 1 1 1 1}",
    "\\boxed{-1 -1 -1}",
    "\\boxed{999999999 999999999 999999999}",
    "\\boxed{" + "9" * 5000 + " 1 1}",
    "\\boxed{٣ ٣ ٣}",  # Arabic-Indic digits
    "\\boxed{²}",
    "\\boxed{² ² ² ²}",
    "\\boxed{reveal ² ²}",
    "\\boxed{１ ２ ３ ４}",  # full width
    "\\boxed{\x001}",
    "\\boxed{UP\u0130}",
    "\\boxed{\u212aA}",  # the Kelvin sign: its lower case is an ASCII letter
    "\\boxed{ﬁsh 🐟 \ud800 \x00}",
    "a" * 1_000_000,
    "\\boxed{" * 140_000,
    "\\boxed{" + "1 " * 500_000 + "}",
]


def transcript(env_id: str, seed: int, turns: int = 6) -> str:
    env = gem.make(env_id)
    lines = [repr(env.reset(seed=seed))]
    for _ in range(turns):
        step = env.step(env.sample_random_action())
        lines.append(repr(step))
        if step[2] or step[3]:
            break
    return "\n".join(lines)


@pytest.mark.parametrize("env_id", IDS)
def test_a_perfect_game_sums_to_one(env_id: str) -> None:
    env = gem.make(env_id)
    for seed in range(5):
        env.reset(seed=seed)
        for name, value in NEAR_THE_END.get(env_id, {}).items():
            setattr(env, name, list(value) if isinstance(value, list) else value)
        total, done = 0.0, False
        while not done:
            action = oracle_action(env)
            assert action is not None
            _, reward, done, truncated, info = env.step(action)
            assert info["action_is_valid"]
            assert not truncated
            total += reward
        assert total == pytest.approx(1.0)
        assert info["success"]
        assert "suffix" not in info
        with pytest.raises(RuntimeError, match="reset"):
            env.step(action)


@pytest.mark.parametrize("env_id", IDS)
def test_random_actions_are_well_formed_and_the_turn_limit_truncates(env_id: str) -> None:
    env = gem.make(env_id)
    for seed in range(3):
        env.reset(seed=seed)
        for turn in range(1, env.max_turns + 1):  # type: ignore[attr-defined]
            text, reward, terminated, truncated, info = env.step(env.sample_random_action())
            assert reward >= 0.0
            assert text
            assert info["turn"] == turn
            if terminated or truncated:
                break
            assert info["suffix"]
        assert terminated != truncated
        if truncated:
            assert turn == env.max_turns  # type: ignore[attr-defined]
            assert "last" in text


@pytest.mark.parametrize("env_id", IDS)
def test_state_goes_through_json_in_the_middle_of_a_game(env_id: str) -> None:
    env = gem.make(env_id)
    for seed in range(11, 100):  # a game that random play does not end at once
        env.reset(seed=seed)
        if not any(any(env.step(env.sample_random_action())[2:4]) for _ in range(3)):
            break
    state = json.loads(json.dumps(env.get_state()))
    other = gem.make(env_id)
    other.set_state(state)
    for _ in range(4):
        action = env.sample_random_action()
        assert other.sample_random_action() == action
        mine = env.step(action)
        assert other.step(action) == mine
        if mine[2] or mine[3]:
            break
    assert other.reset() == env.reset()  # the generators too
    assert other.get_state() == env.get_state()


@pytest.mark.parametrize("env_id", IDS)
def test_odd_actions_get_an_answer(env_id: str) -> None:
    env = gem.make(env_id)
    for action in ODD_ACTIONS:
        env.reset(seed=0)
        text, reward, terminated, truncated, info = env.step(action)
        assert isinstance(text, str), action[:50]
        assert len(text) < 1000, action[:50]
        assert (reward, terminated, truncated) in [(-0.1, True, False), (0.0, False, False)], action[:50]
        assert not info["action_is_valid"], action[:50]


@pytest.mark.parametrize("env_id", IDS)
def test_the_last_well_formed_box_counts(env_id: str) -> None:
    env = gem.make(env_id)
    env.reset(seed=0)
    action = env.sample_random_action() if env_id in NEAR_THE_END else oracle_action(env)
    env.spawn(same_state=True).step("\\boxed{}")
    _, _, terminated, _, info = env.step(f"not \\boxed{{0}} but {action}, and \\boxed{{}} is nothing")
    assert info["action_is_valid"]
    assert not terminated or info["success"]


def test_a_seed_gives_the_same_game_in_threads_and_in_a_process_with_another_hash_seed() -> None:
    here_dir = os.path.dirname(__file__)
    here = {env_id: transcript(env_id, 5) for env_id in IDS}
    with ThreadPoolExecutor(4) as pool:
        assert dict(zip(IDS, pool.map(transcript, IDS, [5] * len(IDS)), strict=True)) == here
    code = (
        "import sys, json; sys.path[:0] = sys.argv[1:]; import test_game_contract as t; "
        "print(json.dumps({i: t.transcript(i, 5) for i in t.IDS}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, here_dir, os.path.dirname(here_dir)],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == here


def test_seeds_differ_and_resets_without_a_seed_go_on() -> None:
    for env_id in IDS:
        env = gem.make(env_id)
        games = []
        for seed in range(20):
            env.reset(seed=seed)
            games.append(json.dumps(env.get_state()["game"]))
        if "TowerofHanoi" not in env_id and "Minesweeper" not in env_id:  # deal nothing before the first move
            assert len(set(games)) > (1 if env_id == "game:FifteenPuzzle-v0-easy" else 5), env_id
            dealt = [env.reset() and json.dumps(env.get_state()["game"]) for _ in range(6)]
            assert len(set(dealt)) > 1, env_id


def test_random_variants_draw_every_parameter() -> None:
    seen: dict[str, set[tuple[object, ...]]] = {}
    for name, fields in {
        "Sudoku": ("scale", "clues", "max_turns"),
        "Sokoban": ("height", "width", "num_boxes", "max_turns"),
        "Crosswords": ("hardcore", "num_words"),
        "WordSearch": ("hardcore", "max_turns"),
        "Mastermind": ("code_length", "num_numbers", "max_turns"),
        "Minesweeper": ("rows", "cols", "num_mines", "max_turns"),
        "Wordle": ("word_length", "max_turns"),
        "FifteenPuzzle": ("size", "max_turns"),
        "Game2048": ("target_tile", "max_turns"),
        "TowerofHanoi": ("num_disks", "max_turns"),
        "Hangman": ("max_turns",),
        "GuessTheNumber": ("high", "max_turns"),
    }.items():
        env = gem.make(f"game:{name}-v0-random")
        for seed in range(60):
            env.reset(seed=seed)
            seen.setdefault(name, set()).add(tuple(getattr(env, field) for field in fields))
    assert seen["Sudoku"] == {(4, 10, 15), (9, 50, 50)}
    assert seen["Sokoban"] == {(6, 6, 2, 20), (8, 8, 5, 50)}
    assert seen["Crosswords"] == {(hard, n) for hard in (False, True) for n in (2, 3, 4)}
    assert seen["Mastermind"] == {(2, 4, 10), (4, 6, 20), (4, 8, 30)}
    assert seen["Minesweeper"] == {(n, n, n * n // 5, n * n) for n in (5, 6, 7, 8)}
    assert seen["Wordle"] == {(n, 5 * n) for n in (3, 4, 5)}
    assert seen["FifteenPuzzle"] == {(2, 10), (3, 20), (4, 50)}
    assert seen["Game2048"] == {(16, 20), (32, 30), (64, 50)}
    assert seen["TowerofHanoi"] == {(3, 10), (4, 20), (5, 35)}
    assert seen["Hangman"] == {(10,), (15,), (20,)}
    assert len(seen["GuessTheNumber"]) > 20
    assert seen["WordSearch"] == {(hard, 4 * n) for hard in (False, True) for n in (3, 4, 5, 6, 7)}


def test_the_global_generator_is_left_alone() -> None:
    random.seed(1)
    before = random.getstate()
    for env_id in IDS:
        transcript(env_id, 3)
    assert random.getstate() == before


def test_numpys_global_generator_is_left_alone() -> None:
    numpy = pytest.importorskip("numpy")
    numpy.random.seed(1)
    before = [str(x) for x in numpy.random.get_state()]
    for env_id in IDS:
        transcript(env_id, 3)
    assert [str(x) for x in numpy.random.get_state()] == before


@pytest.mark.parametrize("env_id", IDS)
def test_sampling_actions_does_not_change_the_game(env_id: str) -> None:
    env, other = gem.make(env_id), gem.make(env_id)
    env.reset(seed=7)
    other.reset(seed=7)
    for _ in range(3):
        action = env.sample_random_action()
        for _ in range(5):
            env.sample_random_action()
        mine = env.step(action)
        assert other.step(action) == mine
        if mine[2] or mine[3]:
            break
    assert other.reset() == env.reset()


NONSENSE = {
    "GuessTheNumber": [{"min_number": "1"}, {"max_number": 1.5}, {"min_number": 9, "max_number": 3}],
    "Mastermind": [{"code_length": 0}, {"num_numbers": -1}, {"duplicate_numbers": "no"}, {"code_length": 1000}],
    "Minesweeper": [{"rows": 0}, {"cols": 10**6}, {"num_mines": 0}, {"num_mines": 2.0}, {"num_mines": 60}],
    "Wordle": [{"word_length": 2}, {"word_length": "5"}, {"only_real_words": 1}],
    "FifteenPuzzle": [{"num_rows": 1}, {"num_rows": True}, {"num_rows": 3.0}],
    "Hangman": [{"word_length": 99}, {"hardcore": "very"}],
    "TowerofHanoi": [{"num_disks": 0}, {"num_disks": 21}],
    "Game2048": [{"target_tile": 60}, {"target_tile": 0}, {"target_tile": 2**40}, {"board_size": 1}],
    "Sudoku": [{"scale": 5}, {"clues": -3}],
    "Sokoban": [{"num_boxes": 0}, {"dim_room": (1, 1)}],
    "Crosswords": [{"num_words": 0}],
    "WordSearch": [{"num_words": 0}],
}


@pytest.mark.parametrize("env_id", IDS)
def test_nonsense_in_the_constructor_is_named(env_id: str) -> None:
    name = env_id.split(":")[1].split("-v0")[0]
    for bad in [*NONSENSE.get(name, []), {"max_turns": 0}, {"max_turns": "9"}, {"max_turns": True}]:
        with pytest.raises(ValueError, match=next(iter(bad))):
            gem.make(env_id, **bad)
    with pytest.raises(ValueError, match="max_tunrs"):
        gem.make(env_id, max_tunrs=3)


def test_oracles_name_an_environment_that_they_do_not_play() -> None:
    with pytest.raises(ValueError, match="ScriptEnv"):
        oracle_action(ScriptEnv([]))

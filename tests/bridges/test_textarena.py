from __future__ import annotations

import importlib.util
import json
import random
from typing import Any

import pytest
from bridges_support import require

import gem_core
from gem_core.multiagent import SeatSessions, play_seats
from gem_core.policies import TextPolicy

#: Games that need no download and no key: one player, two players, more.
GAMES = [
    "Bandit-v0",
    "FrozenLake-v0",
    "GuessTheNumber-v0",
    "TicTacToe-v0",
    "KuhnPoker-v0",
    "ConnectFour-v0",
    "LiarsDice-v0",
]


def play(env: Any, seed: int, turns: int = 40) -> list[Any]:
    log: list[Any] = [env.reset(seed=seed)]
    for _ in range(turns):
        log.append(env.step(env.sample_random_action()))
        if log[-1][2] or log[-1][3]:
            break
    return log


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_an_environment_in_one_line(name: str) -> None:
    require("textarena")
    env = gem_core.make(f"textarena:{name}")
    state = random.getstate()
    log = play(env, seed=4)
    assert log[0][0].startswith("[GAME]")
    assert all(isinstance(step[0], str) and isinstance(step[1], float) for step in log[1:])
    assert play(env, seed=4) == log
    assert random.getstate() == state
    if log[-1][2]:
        assert isinstance(log[-1][4]["success"], bool)
        with pytest.raises(RuntimeError, match="reset"):
            env.step("[0]")
    env.close()


@pytest.mark.parametrize("name", ["TicTacToe-v0", "FrozenLake-v0"])
def test_state_is_played_again(name: str) -> None:
    require("textarena")
    env = gem_core.make(f"textarena:{name}")
    env.reset(seed=1)
    env.step(env.sample_random_action())
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    for _ in range(10):
        action = env.sample_random_action()
        result = env.step(action)
        assert sibling.step(action) == result
        if result[2]:
            break


def test_opponents_and_seats() -> None:
    require("textarena")
    seen: list[str] = []

    def first_free(observation: str, info: dict[str, Any]) -> str:
        seen.append(observation)
        return f"[{len(seen) + 5}]"  # 6, 7, 8: the last row

    env = gem_core.make("textarena:TicTacToe-v0", seat="player_0", opponent=first_free)
    env.reset(seed=0)
    env.step("[0]")
    env.step("[1]")
    _, reward, terminated, _, info = env.step("[4]")
    assert (reward, terminated, info["success"]) == (-1.0, True, False)
    assert "has won" in info["reason"]
    assert "[0]" in seen[0]
    with pytest.raises(ValueError, match="scripted"):
        gem_core.make("textarena:TicTacToe-v0", opponent="scripted")
    with pytest.raises(ValueError, match="3 players"):
        gem_core.make("textarena:TicTacToe-v0", num_players=3)


def test_all_seats_can_be_trained() -> None:
    require("textarena")
    game = gem_core.make("textarena:TicTacToe-v0", seat="all")
    moves = iter(["[0]", "[3]", "[1]", "[4]", "[2]"])
    episodes = play_seats(SeatSessions(game, seed=0), TextPolicy(lambda prompt: next(moves)))  # type: ignore[arg-type]
    assert [t.reward for t in episodes["player_0"].turns] == [0.0, 0.0, 1.0]
    assert [t.reward for t in episodes["player_1"].turns] == [0.0, -1.0]


def test_ids_are_listed_and_near_misses_named() -> None:
    require("textarena")
    assert "textarena:TicTacToe-v0" in gem_core.list_envs("textarena:*")
    with pytest.raises(ValueError, match="textarena:TicTacToe-v0"):
        gem_core.make("textarena:TicTacTo-v0")


def test_without_the_package_the_error_says_what_to_install() -> None:
    if importlib.util.find_spec("textarena") is not None:
        pytest.skip("textarena is installed")
    with pytest.raises(ImportError, match="pip install textarena"):
        gem_core.make("textarena:TicTacToe-v0")
    assert gem_core.list_envs("textarena:*") == []

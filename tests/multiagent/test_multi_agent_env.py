from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.multiagent import AgentSelector, MultiAgentEnv, RockPaperScissorsEnv, SeatView, TicTacToeEnv
from gem_core.multiagent.multi_agent_env import MultiStep


class Auction(MultiAgentEnv):
    """Written as for GEM: three agents in turn, each out after naming a number below the highest one so far."""

    state_fields = ("highest",)

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["ann", "bob", "cy"]
        self.agent_selector = AgentSelector(self.possible_agents, mode="sequential")
        self.highest = 0

    def deal(self) -> None:
        self.highest = 0

    def observe(self, agent: str) -> str:
        return f"{agent}: the highest bid is {self.highest}"

    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        ((agent, action),) = actions.items()
        bid = int(action)
        out = bid <= self.highest
        self.highest = max(bid, self.highest)
        return {}, {agent: -1.0 if out else 0.0}, {agent: out}, {}, {agent: {"bid": bid}}


@pytest.mark.parametrize("make", [TicTacToeEnv, RockPaperScissorsEnv, Auction])
def test_the_contract_of_reset(make: Callable[[], MultiAgentEnv]) -> None:
    env = make()
    with pytest.raises(RuntimeError, match="reset"):
        env.step({})
    observations, infos = env.reset(seed=1)
    assert list(observations) == list(infos) == env.agents == env.possible_agents
    assert set(env.acting_agents()) <= set(env.agents)
    for agent in env.agents:
        assert env.observe(agent) == observations[agent]
        assert env.get_state(agent) == (observations[agent], 0.0, False, False, infos[agent])
    with pytest.raises(ValueError, match="options"):
        env.reset(options={"x": 1})


def test_agents_leave_one_by_one_and_the_turn_passes_on() -> None:
    env = Auction()
    env.reset(seed=0)
    order = []
    for bid in ("5", "6", "7", "3", "9", "8", "10"):
        agent = env.agent_selection
        assert agent is not None
        order.append(agent)
        observations, rewards, terminations, truncations, infos = env.step({agent: bid})
        assert set(observations) == set(rewards) == set(terminations) == set(truncations) == set(infos)
        assert infos[agent]["bid"] == int(bid)
        assert observations[agent] == f"{agent}: the highest bid is {env.highest}"
    assert order == ["ann", "bob", "cy", "ann", "bob", "cy", "bob"]
    assert env.agents == ["bob"]
    assert env.last("ann")[1:4] == (-1.0, True, False)
    env.step({"bob": "1"})
    assert env.agents == []
    assert env.agent_selection is None
    with pytest.raises(RuntimeError):
        env.step({"bob": "1"})


def test_actions_of_the_wrong_agents_are_refused_by_name() -> None:
    env = TicTacToeEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="no action of player_0"):
        env.step({})
    with pytest.raises(ValueError, match="not the turn of player_1, but of player_0"):
        env.step({"player_0": r"\boxed{1}", "player_1": r"\boxed{2}"})
    with pytest.raises(ValueError, match="dict by agent"):
        env.step(r"\boxed{1}")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="player_0"):
        env.step({"player_0": 1})  # type: ignore[dict-item]
    assert env.board == "........."


def test_the_selector_keeps_the_turn_when_others_leave() -> None:
    selector = AgentSelector(["a", "b", "c"])
    selector.next()
    selector.remove_agent("a")
    assert selector.selected == "b"
    selector.next()
    selector.remove_agent("c")
    assert selector.selected == "b"
    selector.add_agent("d")
    assert selector.get_active_agents() == ["b"]
    assert (selector.is_first(), selector.is_last()) == (True, False)
    selector.remove_agent("b")
    selector.remove_agent("d")
    assert selector.get_active_agents() == []
    assert AgentSelector(["a", "b"], "parallel").get_active_agents() == ["a", "b"]
    with pytest.raises(ValueError, match="turns"):
        AgentSelector(["a"], "turns")  # type: ignore[arg-type]


def play_tic_tac_toe(moves: str) -> tuple[TicTacToeEnv, MultiStep]:
    env = TicTacToeEnv()
    env.reset(seed=0)
    for move in moves:
        agent = env.agent_selection
        assert agent is not None
        result = env.step({agent: f"I take \\boxed{{{move}}}"})
    return env, result


def test_tic_tac_toe_is_won_and_lost() -> None:
    env, (observations, rewards, terminations, truncations, infos) = play_tic_tac_toe("14253")
    assert rewards == {"player_0": 1.0, "player_1": -1.0}
    assert set(terminations.values()) == {True}
    assert set(truncations.values()) == {False}
    assert (infos["player_0"]["success"], infos["player_1"]["success"]) == (True, False)
    assert "You win." in observations["player_0"]
    assert "You lose." in observations["player_1"]
    assert "X X X\nO O 6" in observations["player_1"]
    assert "suffix" not in infos["player_0"]
    assert env.agents == []


def test_tic_tac_toe_draws_forfeits_and_lost_turns() -> None:
    _, (observations, rewards, terminations, *_) = play_tic_tac_toe("123546879")
    assert set(rewards.values()) == {0.0}
    assert set(terminations.values()) == {True}
    assert "draw" in observations["player_0"]
    env, (observations, rewards, terminations, _, infos) = play_tic_tac_toe("11")
    assert not any(terminations.values())
    assert infos["player_1"]["action_is_valid"] is False
    assert env.agent_selection == "player_0"
    _, (_, rewards, terminations, _, infos) = play_tic_tac_toe("10")
    assert rewards == {"player_0": 0.0, "player_1": -1.0}
    assert set(terminations.values()) == {True}
    _, (_, rewards, terminations, truncations, _) = play_tic_tac_toe("1" * 18)
    assert set(truncations.values()) == {True}
    assert not any(terminations.values())


def test_perfect_tic_tac_toe_never_loses() -> None:
    view = gem_core.make("multi:TicTacToe-v0-hard", opponent="random")
    assert isinstance(view, SeatView)
    returns = []
    for seed in range(30):
        view.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, _ = view.step(view.scripted_action())
            total, done = total + reward, terminated or truncated
        returns.append(total)
    assert min(returns) >= 0.0
    assert sum(returns) > 15


def test_rock_paper_scissors_rounds() -> None:
    env = RockPaperScissorsEnv(rounds=4)
    env.reset(seed=0)
    assert env.acting_agents() == ["player_0", "player_1"]
    total = {"player_0": 0.0, "player_1": 0.0}
    plays = [(r"\boxed{rock}", r"\boxed{Scissors}"), (r"\boxed{paper}", r"\boxed{paper}"), ("?", r"\boxed{rock}")]
    for first, second in [*plays, ("", "none")]:
        observations, rewards, terminations, _truncations, infos = env.step({"player_0": first, "player_1": second})
        assert sum(rewards.values()) == 0.0
        for agent, reward in rewards.items():
            total[agent] += reward
    assert total == {"player_0": 0.0, "player_1": 0.0}
    assert set(terminations.values()) == {True}
    assert "Rounds won minus rounds lost: 0." in observations["player_0"]
    assert infos["player_0"]["action_is_valid"] is False
    assert env.history[0] == ["rock", "scissors"]


def play_random(env: MultiAgentEnv, rng: random.Random, turns: int) -> list[Any]:
    log = []
    for _ in range(turns):
        if not env.agents:
            break
        log.append(env.step({a: env.sample_random_action(a, rng) for a in env.acting_agents()}))
    return log


@pytest.mark.parametrize("make", [TicTacToeEnv, RockPaperScissorsEnv])
@given(seed=st.integers(0, 10_000), turns=st.integers(0, 8))
@settings(max_examples=12, deadline=None)
def test_state_round_trips_through_json(make: Callable[[], MultiAgentEnv], seed: int, turns: int) -> None:
    env = make()
    env.reset(seed=seed)
    play_random(env, random.Random(seed), turns)
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    assert [sibling.observe(a) for a in sibling.agents] == [env.observe(a) for a in env.agents]
    assert play_random(sibling, random.Random(1), 20) == play_random(env, random.Random(1), 20)
    assert sibling.last("player_0") == env.last("player_0")


@pytest.mark.parametrize("env_id", gem_core.list_envs("multi:"))
def test_every_id_is_a_plain_environment(env_id: str) -> None:
    env = gem_core.make(env_id)
    state = random.getstate()
    for seed in range(8):
        observation, info = env.reset(seed=seed)
        assert observation
        assert info["suffix"]
        first = (observation, info)
        log: list[Any] = []
        for _ in range(40):
            log.append(env.step(env.sample_random_action()))
            if log[-1][2] or log[-1][3]:
                break
        assert log[-1][2]
        assert "suffix" not in log[-1][4]
        assert isinstance(log[-1][4]["success"], bool)
        assert -1.0 <= sum(step[1] for step in log) <= 1.0
        with pytest.raises(RuntimeError, match="reset"):
            env.step(env.sample_random_action())
        assert env.reset(seed=seed) == first
        for step in log:
            assert env.step(env.sample_random_action()) == step
    assert random.getstate() == state


@pytest.mark.parametrize("env_id", gem_core.list_envs("multi:"))
def test_sampling_actions_changes_nothing_in_the_game(env_id: str) -> None:
    def play(samples: int) -> list[Any]:
        env = gem_core.make(env_id)
        log: list[Any] = [env.reset(seed=3)]
        for action in (r"\boxed{1}", r"\boxed{rock}", r"\boxed{2}"):
            for _ in range(samples):
                env.sample_random_action()
            log.append(env.step(action))
            if log[-1][2]:
                break
        return log

    assert play(0) == play(3)


@pytest.mark.parametrize("env_id", gem_core.list_envs("multi:"))
def test_a_seat_s_state_round_trips(env_id: str) -> None:
    env = gem_core.make(env_id)
    env.reset(seed=5)
    env.step(r"\boxed{1} \boxed{rock}")
    copies = [env.spawn(same_state=True), env.spawn()]
    copies[1].set_state(json.loads(json.dumps(env.get_state())))
    done = False
    while not done:
        action = env.sample_random_action()
        result = env.step(action)
        assert [c.step(action) for c in copies] == [result, result]
        done = result[2] or result[3]


@pytest.mark.parametrize("action", ["", "x" * 1_000_000, r"\boxed{}", "\\boxed{五}", "\x00\\boxed{1}", "\\boxed{" * 9])
def test_odd_actions_get_an_answer(action: str) -> None:
    for env_id in ("multi:TicTacToe-v0", "multi:RockPaperScissors-v0"):
        env = gem_core.make(env_id)
        env.reset(seed=0)
        assert isinstance(env.step(action)[0], str)


def test_the_view_sums_what_happens_between_two_turns_of_its_seat() -> None:
    def lines_up(observation: str, info: dict[str, Any]) -> str:
        board = info["suffix"].split("\n")[1:4]
        free = [c for c in " ".join(board).split() if c.isdigit()]
        return f"\\boxed{{{free[-1]}}}"  # 9, 8, 7

    env = SeatView(TicTacToeEnv(), seat="player_0", opponent=lines_up)
    observation, info = env.reset(seed=0)
    assert info["seat"] == "player_0"
    assert "You play X" in observation
    observation, reward, *_, info = env.step(r"\boxed{1}")
    assert (observation, reward) == ("You took cell 1.\nYour opponent took cell 9.", 0.0)
    assert info["suffix"].startswith("The board:\nX 2 3\n4 5 6\n7 8 O")
    env.step(r"\boxed{2}")
    observation, reward, terminated, truncated, info = env.step(r"\boxed{4}")
    assert (reward, terminated, truncated) == (-1.0, True, False)
    assert "You lose." in observation
    assert info["success"] is False
    second = SeatView(TicTacToeEnv(), seat="player_1", opponent=lines_up)
    observation, _ = second.reset(seed=0)
    assert observation.endswith("Your opponent took cell 9.")


def test_bad_seats_and_opponents_are_named() -> None:
    with pytest.raises(ValueError, match="player_7"):
        gem_core.make("multi:TicTacToe-v0", seat="player_7")
    with pytest.raises(ValueError, match="perfect"):
        gem_core.make("multi:TicTacToe-v0", opponent="perfect")
    with pytest.raises(ValueError, match="player_1"):
        SeatView(TicTacToeEnv(), seat="player_0", opponent={"player_0": "random"})
    with pytest.raises(ValueError, match="seats"):
        gem_core.make("multi:TicTacToe-v0", seats=1)
    assert isinstance(gem_core.make("multi:TicTacToe-v0", seat="all"), TicTacToeEnv)
    env = gem_core.make("multi:RockPaperScissors-v0").spawn(rounds=2, seat="player_1")
    assert env.game.rounds == 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="did you mean 'rounds'"):
        env.spawn(round=2)

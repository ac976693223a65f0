from __future__ import annotations

from typing import Any

import pytest
from support import build_tokenizer

from gem_core.chat import ChatRenderer
from gem_core.episode import StopReason
from gem_core.multiagent import RockPaperScissorsEnv, SeatSessions, TicTacToeEnv, play_seats
from gem_core.multiagent.multi_agent_env import MultiStep
from gem_core.policies import TextPolicy
from gem_core.session import Generation, Limits, Prompt


class Answers:
    """Gives fixed answers in order and remembers the prompts."""

    def __init__(self, answers: list[str], tokenizer: Any = None) -> None:
        self.left = list(answers)
        self.prompts: list[Prompt] = []
        self._policy = TextPolicy(lambda prompt: self.left.pop(0), tokenizer)

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        self.prompts += prompts
        return self._policy.generate(prompts)


def boxes(text: str) -> list[str]:
    return [f"\\boxed{{{c}}}" for c in text.split()]


def test_each_seat_gets_its_own_episode() -> None:
    sessions = SeatSessions(TicTacToeEnv(), seed=0, game_id="g", group_id="s0")
    first, second = Answers(boxes("1 2 3")), Answers(boxes("4 5"))
    episodes = play_seats(sessions, {"player_0": first, "player_1": second})
    assert [len(episodes[a].turns) for a in ("player_0", "player_1")] == [3, 2]
    assert [t.reward for t in episodes["player_0"].turns] == [0.0, 0.0, 1.0]
    assert [t.reward for t in episodes["player_1"].turns] == [0.0, -1.0]
    assert {e.stop_reason for e in episodes.values()} == {StopReason.TERMINATED}
    assert (episodes["player_0"].success, episodes["player_1"].success) == (True, False)
    assert episodes["player_1"].episode_id == "g/player_1"
    assert episodes["player_1"].group_id == "s0/player_1"
    assert "Your opponent took cell 1." in second.prompts[0].messages[-1]["content"]
    assert "You play O" in second.prompts[0].messages[-1]["content"]
    assert "You lose." in str(episodes["player_1"].final_observation)
    assert sessions.done


def test_a_parallel_round_asks_both_at_once() -> None:
    policy = Answers(boxes("rock paper rock paper"))
    episodes = play_seats(SeatSessions(RockPaperScissorsEnv(rounds=2), seed=0), policy)
    assert [p.turn for p in policy.prompts] == [0, 0, 1, 1]
    assert [t.reward for t in episodes["player_0"].turns] == [-0.5, -0.5]
    assert [t.reward for t in episodes["player_1"].turns] == [0.5, 0.5]


def test_sequences_are_exact_for_every_seat() -> None:
    tokenizer = build_tokenizer()
    sessions = SeatSessions(TicTacToeEnv(), ChatRenderer(tokenizer), seed=0)
    first, second = Answers(boxes("1 2 3"), tokenizer), Answers(boxes("4 5"), tokenizer)
    episodes = play_seats(sessions, {"player_0": first, "player_1": second})
    for agent, policy in (("player_0", first), ("player_1", second)):
        (sequence,) = episodes[agent].to_sequences()
        assert sum(sequence.rewards) == sum(t.reward for t in episodes[agent].turns)
        ids = sequence.prompt_ids + sequence.response_ids
        last = policy.prompts[-1].token_ids
        assert list(ids[: len(last)]) == last


def test_a_seat_that_hits_its_limit_ends_the_game_for_all() -> None:
    sessions = SeatSessions(TicTacToeEnv(), seed=0, limits=Limits(max_turns=2))
    episodes = play_seats(sessions, {"player_0": Answers(boxes("1 2")), "player_1": Answers(boxes("4 5"))})
    assert episodes["player_0"].stop_reason is StopReason.MAX_TURNS
    assert episodes["player_1"].stop_reason is StopReason.TRUNCATED
    assert [len(e.turns) for e in episodes.values()] == [2, 2]
    assert sessions.prompts == {}


def test_an_aborted_generation_is_resumed() -> None:
    sessions = SeatSessions(TicTacToeEnv(), seed=0)
    (agent,) = sessions.start()
    prompts = sessions.submit(agent, Generation(text="\\boxed", finish_reason="abort"))
    assert list(prompts) == [agent]
    prompts = sessions.submit(agent, Generation(text="{5}"))
    assert list(prompts) == ["player_1"]
    assert sessions.env.board == "....X...."  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="player_9"):
        sessions.submit("player_9", Generation(text=""))


class Breaks(TicTacToeEnv):
    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        if self.turn == 1:
            raise OSError("disk on fire")
        return super()._process_actions(actions)


def test_a_game_that_raises_fails_all_seats() -> None:
    episodes = play_seats(SeatSessions(Breaks(), seed=0), Answers(boxes("1 2")))
    assert {e.stop_reason for e in episodes.values()} == {StopReason.ENV_ERROR}
    assert "disk on fire" in str(episodes["player_0"].error)

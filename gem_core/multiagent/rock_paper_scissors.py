"""Rock, paper, scissors over several rounds, for two agents who choose at the same time."""

from __future__ import annotations

import random

from gem_core.core import Info
from gem_core.envs.text_game import boxed_contents, check_positive
from gem_core.multiagent.multi_agent_env import MultiAgentEnv, MultiStep

CHOICES = ("rock", "paper", "scissors")
_FORM = r"\boxed{rock}, \boxed{paper} or \boxed{scissors}"


class RockPaperScissorsEnv(MultiAgentEnv):
    r"""Both agents answer ``\boxed{rock}``, ``\boxed{paper}`` or ``\boxed{scissors}`` in every round.

    Rewards: 1/rounds for the winner of a round and -1/rounds for the loser, 0.0 for both in a draw. An answer without
    a choice in a box loses the round; two of them are a draw.

    Args:
        rounds: Rounds an episode.
    """

    turn_mode = "parallel"
    state_fields = ("history",)

    def __init__(self, rounds: int = 5) -> None:
        super().__init__(["player_0", "player_1"])
        check_positive(rounds=rounds)
        self.rounds = rounds
        #: The choices of both agents in each round; an empty one for an answer without a choice.
        self.history: list[list[str]] = []

    def deal(self) -> None:
        self.history = []
        self.tell(
            self.agents,
            f"Rock, paper, scissors against one opponent, {self.rounds} rounds. Rock beats scissors, scissors beat "
            f"paper, paper beats rock. Both choose at the same time. Think as you like, then answer {_FORM}.",
        )

    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        choices = [self._parse(actions[a]) for a in self.possible_agents]
        self.history.append(choices)
        over = len(self.history) >= self.rounds
        rewards: dict[str, float] = {}
        infos: dict[str, Info] = {}
        for i, agent in enumerate(self.possible_agents):
            own, other = choices[i], choices[1 - i]
            result = _compare(own, other)
            rewards[agent] = result / self.rounds
            word = {1: "You win the round", 0: "A draw", -1: "You lose the round"}[result]
            self.tell(agent, f"You: {own or 'no valid choice'}. Opponent: {other or 'no valid choice'}. {word}.")
            infos[agent] = {"action_is_valid": bool(own)}
            if over:
                balance = sum(_compare(r[i], r[1 - i]) for r in self.history)
                infos[agent]["success"] = balance > 0
                self.tell(agent, f"The last round is played. Rounds won minus rounds lost: {balance}.")
        ended = dict.fromkeys(self.possible_agents, over)
        return {}, rewards, ended, {}, infos

    def _info(self, agent: str) -> Info:
        if agent not in self.agents:
            return {}
        return {"suffix": f"Round {len(self.history) + 1} of {self.rounds}: answer {_FORM}."}

    def sample_random_action(self, agent: str | None = None, rng: random.Random | None = None) -> str:
        return f"\\boxed{{{(rng or self.action_rng).choice(CHOICES)}}}"

    def scripted_action(self, agent: str, rng: random.Random | None = None) -> str:
        """Beats what the opponent chose in the round before: a habit that a learner can find and beat."""
        if self.history:
            before = self.history[-1][1 - self.possible_agents.index(agent)]
            if before:
                return f"\\boxed{{{CHOICES[(CHOICES.index(before) + 1) % 3]}}}"
        return self.sample_random_action(agent, rng)

    def _parse(self, action: str) -> str:
        return next((c.lower() for c in boxed_contents(action) if c.lower() in CHOICES), "")


def _compare(own: str, other: str) -> int:
    """1 where ``own`` beats ``other``, -1 where it loses."""
    if own == other:
        return 0
    if not own or not other:
        return 1 if own else -1
    return 1 if (CHOICES.index(own) - CHOICES.index(other)) % 3 == 1 else -1

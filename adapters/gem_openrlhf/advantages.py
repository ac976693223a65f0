"""Turn-level advantages on OpenRLHF's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gem_core.advantages import ESTIMATORS, GROUP_ESTIMATORS, Array, Moments, estimate, gae, normalize
from gem_openrlhf.output import EpisodeRecord, SequenceRecord

#: Before every name of ours in ``--algo.advantage.estimator``.
PREFIX = "gem_"
#: Names for ``--algo.advantage.estimator``, without the prefix.
NAMES = (*ESTIMATORS, "gae")


def own_name(estimator: str) -> str | None:
    """``rebn`` for ``gem_rebn``; None for an estimator of OpenRLHF's."""
    name = estimator.removeprefix(PREFIX)
    return name if estimator.startswith(PREFIX) and name in NAMES else None


def stand_in(name: str) -> str:
    """The estimator of OpenRLHF's that has the same needs (a critic, several samples a prompt)."""
    return "gae" if name == "gae" else "group_norm" if name in GROUP_ESTIMATORS else "reinforce"


class Batch:
    """The rows of the whole global batch (all ranks' together), and the episodes they are of.

    Args:
        records: One a row, in the rows' order.
    """

    def __init__(self, records: Sequence[SequenceRecord]) -> None:
        self.records = list(records)
        found = {r.episode.episode_id: r.episode for r in self.records if r.episode is not None}
        self.episodes: list[EpisodeRecord] = list(found.values())
        self._number = {e.episode_id: i for i, e in enumerate(self.episodes)}
        #: One reward a turn of each episode.
        self.rewards = [list(e.rewards) for e in self.episodes]

    @property
    def keep(self) -> list[bool]:
        return [not e.masked for e in self.episodes]

    def episode(self, row: int) -> int | None:
        """The row's episode, as an index into :attr:`episodes`; None for a filler row."""
        e = self.records[row].episode
        return None if e is None else self._number[e.episode_id]

    def add_token_rewards(self, row: int, values: torch.Tensor) -> None:
        """Adds a reward that each token has (a KL penalty) to its turn's; ``values`` is over the row's action mask."""
        i = self.episode(row)
        for turn, first, end in self.records[row].turns:
            assert i is not None
            self.rewards[i][turn] += float(values[first - 1 : end - 1].double().sum())

    def add_final_reward(self, row: int, value: float) -> None:
        """Adds to the row's last turn."""
        i = self.episode(row)
        if i is not None and self.records[row].turns:
            self.rewards[i][self.records[row].turns[-1][0]] += value

    def clip(self, low: float, high: float) -> None:
        """Clips every turn's reward."""
        self.rewards = [[min(max(r, low), high) for r in rewards] for rewards in self.rewards]

    def estimate(self, name: str, gamma: float) -> tuple[list[Array], list[Array]]:
        """``(advantages, discounted returns)``: one value a turn of each episode."""
        groups = [e.group_id for e in self.episodes]
        advantages = estimate(name, self.rewards, groups, gamma=gamma, keep=self.keep)
        return advantages, estimate("reinforce", self.rewards, gamma=gamma, keep=self.keep)

    def estimate_gae(self, values: Sequence[torch.Tensor], gamma: float, lam: float) -> tuple[list[Array], list[Array]]:
        """``(advantages, value targets)`` by GAE over turns: a turn's value is the critic's before its first token.

        All tokens of a turn share one advantage, normalised over the turns of the batch, as OpenRLHF does over tokens.

        Args:
            values: The critic's, one tensor a row over the action mask: ``values[k]`` is of the state before token
                ``k + 1``.
            gamma: Discount a turn.
            lam: See :func:`gem_core.advantages.gae`.
        """
        per_turn = [[0.0] * len(r) for r in self.rewards]
        for row, record in enumerate(self.records):
            for turn, first, _ in record.turns:
                i = self.episode(row)
                assert i is not None
                per_turn[i][turn] = float(values[row][first - 1])
        pairs = [gae(r, v, gamma=gamma, lam=lam) for r, v in zip(self.rewards, per_turn, strict=True)]
        moments = Moments()
        for (advantages, _), kept in zip(pairs, self.keep, strict=True):
            if kept:
                moments += Moments.of(advantages)
        return [normalize(a, moments) for a, _ in pairs], [targets for _, targets in pairs]

    def spread(self, row: int, per_turn: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
        """One value a turn of each episode, on the row's sampled tokens; 0.0 elsewhere. ``like`` is the action mask's
        shape, (tokens - 1,)."""
        out = torch.zeros(like.shape, dtype=torch.float32)
        i = self.episode(row)
        for turn, first, end in self.records[row].turns:
            assert i is not None
            out[first - 1 : end - 1] = float(per_turn[i][turn])
        return out

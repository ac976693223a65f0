"""The learner's credit assignment on tensors: one number a row, since a row is a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from gem_core.advantages import EPS, Moments, gae

#: Sums a tensor over all data-parallel ranks.
SumOverRanks = Callable[[torch.Tensor], torch.Tensor]


def rebn(returns: torch.Tensor, sum_over_ranks: SumOverRanks) -> tuple[torch.Tensor, Moments]:
    """Return batch normalization: minus the mean of the global batch, over its population standard deviation + 1e-9.

    Args:
        returns: This rank's, one a turn, shape (turns,).
        sum_over_ranks: Called once, with (count, sum, sum of squares) as float64.

    Returns:
        ``(advantages, moments)``: shape (turns,) in the dtype of ``returns``, zeros where the global batch has no
        spread, and the global batch's moments.
    """
    exact = returns.double()
    count = torch.tensor(float(exact.numel()), dtype=torch.float64, device=exact.device)
    shared = sum_over_ranks(torch.stack([count, exact.sum(), exact.square().sum()]))
    moments = Moments(*shared.tolist())
    if moments.std == 0.0:
        return torch.zeros_like(returns), moments
    return ((exact - moments.mean) / (moments.std + EPS)).to(returns.dtype), moments


class Place(NamedTuple):
    """Which turn of which episode a row is."""

    episode_id: str
    turn: int
    #: The turn's reward.
    reward: float
    #: The discounted return that followed it, 0.0 after an episode's last turn.
    following: float


def turn_gae(
    places: Sequence[Place], values: Sequence[float], *, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """GAE over the turns of each episode in the batch.

    Where the turn after an episode's last row is not in the batch, the return that followed stands for its value.

    Args:
        places: One a row, in any order.
        values: The critic's value of the state that each row acted in.
        gamma: Discount a turn.
        lam: See :func:`gem_core.advantages.gae`.

    Returns:
        ``(advantages, value_targets)``, one number a row.
    """
    rows: dict[str, list[int]] = {}
    for i in sorted(range(len(places)), key=lambda i: places[i].turn):
        rows.setdefault(places[i].episode_id, []).append(i)
    advantages = [0.0] * len(places)
    targets = [0.0] * len(places)
    for own in rows.values():
        a, v = gae(
            [places[i].reward for i in own],
            [values[i] for i in own],
            gamma=gamma,
            lam=lam,
            bootstrap=places[own[-1]].following,
        )
        for i, advantage, target in zip(own, a.tolist(), v.tolist(), strict=True):
            advantages[i], targets[i] = advantage, target
    return advantages, targets

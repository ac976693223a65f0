"""Turn-level advantages on RL2's batch.

RL2's own estimators are chosen in an if-chain: ``reinforce`` gives all tokens of a trajectory one advantage, ``gae``
needs a critic. These work on the same tensors: rows of shape (sequences, tokens), ``cu_seqs`` of shape
(trajectories + 1,) saying which rows make up a trajectory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from gem_core.advantages import estimate

Span = tuple[int, int, int]


def turn_spans(action_mask: torch.Tensor, cu_seqs: Sequence[int]) -> list[list[Span]]:
    """The turns of each trajectory, in order, as ``(row, first, end)``: runs of sampled tokens.

    Args:
        action_mask: Shape (sequences, tokens), 1 where sampled.
        cu_seqs: Shape (trajectories + 1,); trajectory ``i`` has rows ``cu_seqs[i]`` up to ``cu_seqs[i + 1]``.
    """
    padded = torch.nn.functional.pad(action_mask.bool().int(), (1, 1))
    edges = padded.diff(dim=1)
    spans: list[list[Span]] = []
    for start, end in itertools.pairwise(cu_seqs):
        found: list[Span] = []
        for row in range(start, end):
            firsts = (edges[row] == 1).nonzero().flatten().tolist()
            ends = (edges[row] == -1).nonzero().flatten().tolist()
            found += [(row, a, b) for a, b in zip(firsts, ends, strict=True)]
        spans.append(found)
    return spans


def turn_advantages(
    name: str,
    rewards: torch.Tensor,
    action_mask: torch.Tensor,
    cu_seqs: torch.Tensor | Sequence[int],
    *,
    gamma: float,
    responses_per_prompt: int,
) -> torch.Tensor:
    """Runs :func:`gem_core.advantages.estimate` on RL2's tensors.

    A trajectory without sampled tokens (a failed episode, masked) enters no statistic.

    Args:
        name: One of :data:`gem_core.advantages.ESTIMATORS`.
        rewards: Shape (sequences, tokens), 0.0 but on turns' last tokens (and where a KL penalty is in the reward).
        action_mask: Shape (sequences, tokens).
        cu_seqs: Shape (trajectories + 1,).
        gamma: Discount a turn.
        responses_per_prompt: RL2's group size; trajectories come group by group.

    Returns:
        Shape (sequences, tokens), float32, 0.0 outside sampled tokens.

    Raises:
        ValueError: unknown name, or trajectories that do not fill whole groups.
    """
    spans = turn_spans(action_mask, [int(c) for c in cu_seqs])
    if len(spans) % responses_per_prompt:
        raise ValueError(f"{len(spans)} trajectories do not fill groups of {responses_per_prompt}")
    exact = rewards.double()
    per_turn = [[float(exact[row, a:b].sum()) for row, a, b in turns] for turns in spans]
    groups = [str(i // responses_per_prompt) for i in range(len(spans))]
    estimated = estimate(name, per_turn, groups, gamma=gamma, keep=[bool(turns) for turns in spans])
    out = torch.zeros(action_mask.shape, dtype=torch.float32)
    for turns, values in zip(spans, estimated, strict=True):
        for (row, a, b), value in zip(turns, values, strict=True):
            out[row, a:b] = float(value)
    return out

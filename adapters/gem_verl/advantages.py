"""Turn-level advantage estimators, registered with verl's own registry.

verl hands an estimator padded tensors of rows; a turn is a run of sampled tokens (mask 1) between environment tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from gem_core.advantages import estimate, gae

Spans = list[list[tuple[int, int]]]


def turn_spans(response_mask: torch.Tensor) -> Spans:
    """The turns of each row as ``(first, end)`` positions; ``response_mask`` has shape (rows, tokens)."""
    spans: Spans = []
    for row in response_mask.bool().tolist():
        found: list[tuple[int, int]] = []
        start = None
        for k, sampled in enumerate([*row, False]):
            if sampled and start is None:
                start = k
            elif not sampled and start is not None:
                found.append((start, k))
                start = None
        spans.append(found)
    return spans


def turn_rewards(token_level_rewards: torch.Tensor, spans: Spans) -> list[list[float]]:
    """Each turn's reward: the sum over its tokens (a KL penalty in the reward sits on all of them)."""
    rewards = token_level_rewards.double()
    return [[float(rewards[i, a:b].sum()) for a, b in row] for i, row in enumerate(spans)]


def spread(per_turn: list[Any], spans: Spans, like: torch.Tensor) -> torch.Tensor:
    """Writes one value a turn onto all its tokens; 0.0 elsewhere. Shape and dtype of ``like``."""
    out = torch.zeros_like(like, dtype=torch.float32)
    for i, (row, values) in enumerate(zip(spans, per_turn, strict=True)):
        for (a, b), value in zip(row, values, strict=True):
            out[i, a:b] = float(value)
    return out


def turn_level(
    name: str, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, config: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs :func:`gem_core.advantages.estimate` on verl's tensors.

    Returns:
        ``(advantages, returns)``, both (rows, tokens), 0.0 outside sampled tokens.
    """
    gamma = 1.0 if config is None else float(config.get("gamma", 1.0))
    spans = turn_spans(response_mask)
    rewards = turn_rewards(token_level_rewards, spans)
    groups = None if index is None else [str(g) for g in index]
    advantages = estimate(name, rewards, groups, gamma=gamma)
    returns = estimate("reinforce", rewards, gamma=gamma)
    return spread(advantages, spans, token_level_rewards), spread(returns, spans, token_level_rewards)


def turn_level_gae(
    token_level_rewards: torch.Tensor, values: torch.Tensor, response_mask: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """GAE over turns instead of tokens: a turn's value is the critic's before its first token, and all its tokens share
    one advantage (normalised over the turns of the batch, as verl whitens its token-level GAE) and one value target.

    Returns:
        ``(advantages, value targets)``, both (rows, tokens).
    """
    from gem_core.advantages import Moments, normalize

    spans = turn_spans(response_mask)
    rewards = turn_rewards(token_level_rewards, spans)
    pairs = [
        gae(r, [float(values[i, a]) for a, _ in row], gamma=gamma, lam=lam)
        for i, (r, row) in enumerate(zip(rewards, spans, strict=True))
    ]
    moments = Moments()
    for advantages, _ in pairs:
        moments += Moments.of(advantages)
    scaled = [normalize(advantages, moments) for advantages, _ in pairs]
    return (
        spread(scaled, spans, token_level_rewards),
        spread([targets for _, targets in pairs], spans, token_level_rewards),
    )


def _register(name: str) -> None:
    @register_adv_est(f"gem_{name}")  # type: ignore[untyped-decorator]
    def estimator(
        token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any = None, config: Any = None, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return turn_level(name, token_level_rewards, response_mask, index, config)


for _name in ("rebn", "reinforce", "grpo_turn", "rloo_turn"):
    _register(_name)

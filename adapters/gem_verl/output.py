"""From an episode to verl's rows (``AgentLoopOutput``)."""

from __future__ import annotations

from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from gem_core.episode import Episode, StopReason, TokenSequence
from gem_verl.settings import GemSettings


class GemAgentLoopOutput(AgentLoopOutput):  # type: ignore[misc]  # verl has no type information
    """One training sequence, with a reward on each turn's last token.

    verl's own ``as_dict`` puts ``reward_score`` on the last token of the row only, which would lose dense rewards.
    """

    #: One a response token; see :attr:`gem_core.TokenSequence.rewards`.
    token_rewards: list[float] = []  # noqa: RUF012  (a pydantic field: copied for each instance)

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().as_dict()
        fields.pop("token_rewards", None)
        fields["rm_scores"] = torch.tensor(self.token_rewards, dtype=torch.float32)
        return fields


def masked(episode: Episode, settings: GemSettings) -> bool:
    """Whether the episode's tokens stay out of the loss."""
    if episode.failed:
        return settings.failed_loss == "mask"
    return episode.truncated and not episode.terminated and settings.truncated_loss == "mask"


def rows(
    episode: Episode,
    settings: GemSettings,
    *,
    gamma: float = 1.0,
    estimator: str = "gem_rebn",
    metrics: AgentLoopMetrics | None = None,
    extra_fields: dict[str, Any] | None = None,
    filler_token: int = 0,
) -> list[GemAgentLoopOutput]:
    """Lays one episode out as verl's rows: one, unless the context was rebuilt or rewritten.

    Args:
        episode: A finished episode.
        settings: Decides what is masked.
        gamma: verl's ``algorithm.gamma``, for episodes of several sequences (:func:`_row_rewards`).
        estimator: verl's ``algorithm.adv_estimator``, likewise.
        metrics: verl's timing record.
        extra_fields: Put into each row's ``extra_fields`` (weight versions).
        filler_token: For an episode without a single token (a failed reset): verl wants at least one row a session, so
            it gets one token that is masked.
    """
    metrics = metrics or AgentLoopMetrics()
    shared: dict[str, Any] = {
        "reward_extra_info": reward_extra_info(episode),
        "gem_env_id": episode.env_id,
        "gem_stop_reason": str(episode.stop_reason),
        **(extra_fields or {}),
    }
    common: dict[str, Any] = {
        "reward_score": episode.total_reward,
        "num_turns": 2 * len(episode.turns) + 1,  # verl counts messages: each observation and each reply
        "metrics": metrics,
    }
    sequences = [s for s in episode.to_sequences() if s.response_ids]
    if not sequences:
        return [
            GemAgentLoopOutput(
                prompt_ids=[filler_token],
                response_ids=[filler_token],
                response_mask=[0],
                response_logprobs=[0.0],
                token_rewards=[0.0],
                extra_fields=dict(shared),
                **common,
            )
        ]
    keep = 0 if masked(episode, settings) else 1
    return [
        GemAgentLoopOutput(
            prompt_ids=s.prompt_ids,
            response_ids=s.response_ids,
            response_mask=[m * keep for m in s.response_mask],
            response_logprobs=s.logprobs if s.has_logprobs else None,
            token_rewards=rewards,
            extra_fields=dict(shared),
            **common,
        )
        for s, rewards in zip(sequences, _row_rewards(episode, sequences, gamma, estimator), strict=True)
    ]


def reward_extra_info(episode: Episode) -> dict[str, float]:
    """What verl averages over validation episodes, for each environment apart; the same keys for every episode."""
    return {
        "success": float(bool(episode.success)),
        "return": episode.total_reward,
        "turns": float(len(episode.turns)),
        "sampled_tokens": float(episode.num_sampled_tokens),
        **{f"stop_{r.value}": float(episode.stop_reason is r) for r in StopReason},
    }


def _row_rewards(episode: Episode, sequences: list[TokenSequence], gamma: float, estimator: str) -> list[list[float]]:
    """Token rewards of each row.

    An episode of one sequence keeps its turns' rewards as they are. verl's estimators see rows, not episodes, so where
    an episode has several:

    * verl's own ``grpo`` reads the last row's sum as the episode's score: the earlier rows' rewards are added there.
    * every other estimator gets, on each row's last sampled token, the discounted return of what came after it, so
      that each turn's return within its row is its return in the episode.
    """
    if len(sequences) == 1:
        return [sequences[0].rewards]
    out = [list(s.rewards) for s in sequences]
    last_tokens = [max((k for k, m in enumerate(s.response_mask) if m), default=len(s) - 1) for s in sequences]
    if estimator == "grpo":
        out[-1][last_tokens[-1]] += sum(sum(r) for r in out[:-1])
        return out
    returns = episode.returns(gamma)
    for i, s in enumerate(sequences[:-1]):
        following = [t for later in sequences[i + 1 :] for t in later.turns]
        if following and s.turns:
            out[i][last_tokens[i]] += gamma * returns[min(following)]
    return out

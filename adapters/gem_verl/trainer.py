"""Trainer modes ``gem_sync``, ``gem_colocate_async`` and ``gem_separate_async``: verl's own with GEM's metrics, and GAE
over turns.

Everything else in this package works with verl's modes; these add what no registry of verl's reaches.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from gem_verl.advantages import turn_level_gae

#: Seconds between two looks at the replay buffer. verl's 2 s are a large part of a short step.
POLL_INTERVAL_S = 0.2


class GemTrainerMixin(PPOTrainer):  # type: ignore[misc]  # verl has no type information
    """Logs ``gem/success``, ``gem/return``, ``gem/turns`` and ``gem/stop/<reason>`` of the training episodes, and the
    largest ``|log p(rollout) - log p(train)|`` of a sampled token (``gem/rollout_log_prob_diff_max``); computes
    ``algorithm.adv_estimator=gae`` over turns instead of tokens."""

    #: verl's own name of the mode that this one extends.
    verl_mode = "sync"

    def __init__(self, config: Any) -> None:
        config = copy.copy(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.verl_mode  # verl's base class reads the mode's settings by this name
        super().__init__(config)
        self.replay_buffer.poll_interval = POLL_INTERVAL_S

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        if self.config.actor_rollout_ref.rollout.calculate_log_probs:
            fields = ["response_mask", "rollout_log_probs", "old_log_probs"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
            padded = data.to_padded_tensor()
            gap = (padded["rollout_log_probs"] - padded["old_log_probs"]).abs()[padded["response_mask"].bool()]
            metrics["gem/rollout_log_prob_diff_max"] = float(gap.max()) if len(gap) else 0.0
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        if str(self.config.algorithm.adv_estimator) != "gae":
            return batch
        fields = ["response_mask", "rm_scores", "values"]
        if self.config.algorithm.use_kl_in_reward:
            fields.append("token_level_rewards")
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        mask = data["response_mask"]
        padded = data.to_padded_tensor()
        rewards = padded["token_level_rewards"] if "token_level_rewards" in fields else padded["rm_scores"]
        advantages, returns = turn_level_gae(
            rewards,
            padded["values"],
            padded["response_mask"],
            gamma=float(self.config.algorithm.gamma),
            lam=float(self.config.algorithm.lam),
        )
        written = {"advantages": response_to_nested(advantages, mask), "returns": response_to_nested(returns, mask)}
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(written, batch_size=len(batch))
        )

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        result = super()._compute_metrics(batch, metrics, *args, **kwargs)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        # verl fills a batch up to a multiple of the mini-batch with copies of its first row.
        real = [not tag.get("is_padding", False) for tag in batch.tags]
        pairs = [(k, e) for k, e, r in zip(batch.keys, data.pop("extra_fields").tolist(), real, strict=True) if r]
        metrics.update(_episode_metrics(pairs))
        return result


@register_trainer("gem_sync")
class GemTrainer(GemTrainerMixin, PPOTrainerSync):  # type: ignore[misc]
    """Trainer and rollout take turns; every episode is on policy."""


@register_trainer("gem_colocate_async")
class GemTrainerColocateAsync(GemTrainerMixin, PPOTrainerColocateAsync):  # type: ignore[misc]
    """Episodes go on over a weight update; a generation that the update interrupts is resumed."""

    verl_mode = "colocate_async"


@register_trainer("gem_separate_async")
class GemTrainerSeparateAsync(GemTrainerMixin, PPOTrainerSeparateAsync):  # type: ignore[misc]
    """Trainer and rollout on GPUs of their own (one step off, fully asynchronous)."""

    verl_mode = "separate_async"


def _episode_metrics(rows: list[tuple[str, dict[str, Any]]]) -> dict[str, float]:
    """Means over episodes; the rows of one episode share their key but for its last part."""
    episodes = {key.rsplit("_", 1)[0]: extra for key, extra in rows}
    infos = [e["reward_extra_info"] for e in episodes.values() if e.get("reward_extra_info")]
    if not infos:
        return {}
    out = {f"gem/{name}": sum(i[name] for i in infos) / len(infos) for name in ("success", "return", "turns")}
    stops = Counter(e["gem_stop_reason"] for e in episodes.values() if "gem_stop_reason" in e)
    for reason, count in stops.items():
        out[f"gem/stop/{reason}"] = count / len(episodes)
    return out

"""Trainer mode ``gem_sync``: verl's synchronous trainer with GEM's metrics, and GAE over turns.

Everything else in this package works with verl's own modes; this one adds what no registry of verl's reaches.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_to_nested

from gem_verl.advantages import turn_level_gae


@register_trainer("gem_sync")
class GemPPOTrainer(PPOTrainerSync):  # type: ignore[misc]  # verl has no type information
    """Logs ``gem/success``, ``gem/return``, ``gem/turns``, ``gem/failed`` and ``gem/stop/<reason>`` of the training
    episodes, and computes ``algorithm.adv_estimator=gae`` over turns instead of tokens."""

    def __init__(self, config: Any) -> None:
        config = copy.copy(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # what verl's base class knows this mode as
        super().__init__(config)

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
        metrics.update(_episode_metrics(batch.keys, data.pop("extra_fields").tolist()))
        return result


def _episode_metrics(keys: list[str], extra_fields: list[dict[str, Any]]) -> dict[str, float]:
    """Means over episodes; the rows of one episode share their key but for its last part."""
    episodes = {key.rsplit("_", 1)[0]: extra for key, extra in zip(keys, extra_fields, strict=True)}
    infos = [e["reward_extra_info"] for e in episodes.values() if e.get("reward_extra_info")]
    if not infos:
        return {}
    out = {f"gem/{name}": sum(i[name] for i in infos) / len(infos) for name in ("success", "return", "turns")}
    stops = Counter(e["gem_stop_reason"] for e in episodes.values() if "gem_stop_reason" in e)
    for reason, count in stops.items():
        out[f"gem/stop/{reason}"] = count / len(episodes)
    return out

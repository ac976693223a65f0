"""Trainer modes that look inside a step; the trainer's processes import this through ``VERL_USE_EXTERNAL_MODULES``.

Both log what the loss is handed (``probe/...``); ``probe`` takes another estimator in each step too, so that one run of
verl's trainer covers them all.
"""

from __future__ import annotations

from typing import Any

import transfer_queue as tq
from gem_verl.trainer import GemTrainer, GemTrainerMixin
from omegaconf import open_dict
from verl.trainer.ppo.v1.trainer_base import register_trainer

#: Of step 1, 2, ...; "gae/token" is verl's own over tokens, "gae" this package's over turns.
ESTIMATORS = ("gae", "gae/token", "grpo", "rloo", "reinforce_plus_plus", "gem_grpo_turn", "gem_rloo_turn", "gem_rebn")


@register_trainer("probe")
class ProbeTrainer(GemTrainer):
    """``gem_sync`` with another estimator in each step."""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        name = ESTIMATORS[(self.global_steps - 1) % len(ESTIMATORS)]
        with open_dict(self.config):
            self.config.algorithm.adv_estimator = name.split("/")[0]
        if name.endswith("/token"):
            batch = super(GemTrainerMixin, self)._compute_advantage(batch, metrics)
        else:
            batch = super()._compute_advantage(batch, metrics)
        metrics.update(look(batch))
        return batch


@register_trainer("probe_rebn")
class ProbeRebnTrainer(GemTrainer):
    """``gem_sync`` as it is, watched."""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        metrics.update(look(batch))
        return batch


def look(batch: Any) -> dict[str, float]:
    """What the loss is handed: sampled tokens by stop reason, advantages outside of them, rows whose turns differ."""
    fields = ["advantages", "response_mask", "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    reasons = [e["gem_stop_reason"] for e in data.pop("extra_fields").tolist()]
    padded = data.to_padded_tensor()
    mask, advantages = padded["response_mask"].bool(), padded["advantages"]
    out = {
        "probe/advantage_max": float(advantages.abs().max()),
        "probe/advantage_outside_max": float((advantages * ~mask).abs().max()),
        "probe/rows": float(len(mask)),
        "probe/rows_with_turns_that_differ": float(
            sum(len(set(a[m].tolist())) > 1 for a, m in zip(advantages, mask, strict=True))
        ),
    }
    for row, reason in zip(mask, reasons, strict=True):
        name = f"probe/loss_tokens/{reason}"
        out[name] = out.get(name, 0.0) + float(row.sum())
    return out

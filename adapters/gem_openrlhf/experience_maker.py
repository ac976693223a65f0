"""``GemExperienceMaker``: OpenRLHF's experience maker with one advantage a turn."""

from __future__ import annotations

import math
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

from gem_openrlhf.advantages import Batch, own_name
from gem_openrlhf.output import SequenceRecord
from gem_openrlhf.samples import RECORD, metrics, rows


class GemExperienceMaker(RemoteExperienceMaker):  # type: ignore[misc]  # OpenRLHF has no type information
    """Where ``--algo.advantage.estimator`` is one of ours, each turn's reward becomes its advantage; OpenRLHF's own
    estimators work as ever, on the episode's summed reward.

    OpenRLHF has one experience maker for all ranks, so statistics are over the whole global batch.
    """

    #: Of the last batch; the trainer logs them.
    metrics: dict[str, float]

    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        args = self.args
        ranks = args.actor.num_nodes * args.actor.num_gpus_per_node
        ranks //= args.ds.ring_attn_size * args.ds.tensor_parallel_size
        made = rows(rollout_samples, math.lcm(args.train.batch_size, args.rollout.micro_batch_size * ranks))
        if len(made) > len(rollout_samples) and own_name(args.algo.advantage.estimator) is None:
            raise ValueError(
                f"--algo.advantage.estimator {args.algo.advantage.estimator} takes one training sequence an episode, "
                "and there are episodes with several: use an estimator of ours (gem_rebn), or GEM_HISTORY=append"
            )
        experiences: list[Experience] = super().make_experience_batch(made)
        return experiences

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        """Fills ``advantages`` and ``returns``, (rows, tokens - 1), 0.0 outside sampled tokens."""
        records = [r for e in experiences for r in e.info.pop(RECORD)]
        batch = Batch(records)
        self.metrics = {**metrics(batch.episodes), **_rollout_gap(experiences)}
        name = own_name(self.args.algo.advantage.estimator)
        if name is None:
            done: list[Experience] = super().compute_advantages_and_returns(experiences)
            return done

        shape_rewards(experiences, batch, self.args, self.kl_ctl.value)
        advantage = self.args.algo.advantage
        if name == "gae":
            values = [row for e in experiences for row in e.values]
            advantages, returns = batch.estimate_gae(values, advantage.gamma, advantage.lambd)
        else:
            advantages, returns = batch.estimate(name, advantage.gamma)
        row = 0
        for experience in experiences:
            numbers = range(row, row + len(experience.action_mask))
            like = experience.action_mask
            experience.advantages = torch.stack([batch.spread(r, advantages, like[0]) for r in numbers])
            experience.returns = torch.stack([batch.spread(r, returns, like[0]) for r in numbers])
            experience.info["return"] = torch.tensor([_shaped_return(batch, r) for r in numbers])
            experience.kl = None
            row += len(experience.action_mask)
        return experiences


def shape_rewards(experiences: list[Experience], batch: Batch, args: Any, kl_coef: float) -> None:
    """OpenRLHF's reward shaping, on turns: length penalties go to the row's last turn, ``--reward.clip_range`` clips
    each turn's reward, and the KL penalty of ``--algo.kl.init_coef`` (without ``--algo.kl.use_loss``) is its turn's."""
    for experience in experiences:
        experience.rewards = experience.rewards.float()
    before = [experience.rewards.clone() for experience in experiences]
    apply_length_penalties(experiences, args)
    change = torch.cat([e.rewards - b for e, b in zip(experiences, before, strict=True)])
    for row, value in enumerate(change.tolist()):
        if value:
            batch.add_final_reward(row, value)
    if args.reward.clip_range:
        batch.clip(*args.reward.clip_range)
    if kl_coef > 0.0:
        row = 0
        for experience in experiences:
            for kl in experience.kl:
                batch.add_token_rewards(row, -kl_coef * kl)
                row += 1


def _shaped_return(batch: Batch, row: int) -> float:
    i = batch.episode(row)
    return 0.0 if i is None else sum(batch.rewards[i])


def _rollout_gap(experiences: list[Experience]) -> dict[str, float]:
    """How far the actor's log probabilities of the sampled tokens are from the engine's, where OpenRLHF asked the
    engine for them (for its importance-sampling correction)."""
    if any(e.rollout_log_probs is None or e.action_log_probs is None for e in experiences):
        return {}
    gaps = [
        (e.rollout_log_probs - e.action_log_probs).float().abs()[e.action_mask.bool()]
        for e in experiences
        if e.action_mask.any()
    ]
    if not gaps:
        return {}
    gap = torch.cat(gaps)
    return {"gem/rollout_log_prob_diff_max": float(gap.max()), "gem/rollout_log_prob_diff_mean": float(gap.mean())}


__all__ = ["GemExperienceMaker", "SequenceRecord", "shape_rewards"]

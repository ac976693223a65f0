"""``GemLearner``: Oat's PPO learner with one advantage a turn."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from oat.algorithms.ppo import PPOLearner
from oat.utils.ops import masked_sum, masked_whiten
from torch.utils.data import DataLoader, Dataset

from gem_core.episode import Episode, summarize
from gem_oat.advantages import Place, rebn, turn_gae
from gem_oat.args import GemArgs
from gem_oat.transitions import GemTransition, GemTransitionDataset

#: Means over an environment's held-out episodes.
EVAL_METRICS = ("success", "return", "turns", "sampled_tokens", "failed")


class PlaceHolders(Dataset[tuple[str, str, str]]):
    """Stands for the prompts that Oat's loop counts: one a turn that will be trained on."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[str, str, str]:
        return "", "", ""


class GemLearner(PPOLearner):  # type: ignore[misc]
    """Oat's PPO learner for samples that are turns.

    The loss is Oat's own: clipped ratio against the policy at the start of the batch, times the capped ratio of that
    policy to the sampler. A turn's sum over its tokens is divided by a constant, and its advantage is

    - ``rebn``: its return, minus the mean of all returns in the global batch, over their standard deviation;
    - ``reinforce``: its return;
    - ``ppo``: GAE over the turns of its episode; a turn's value is the critic's before the turn's first token;
    - a group's estimator: what the actor put on the turn's last token.
    """

    args: GemArgs

    def _init(self, args: GemArgs, actors: Sequence[Any]) -> None:
        super()._init(args, actors)
        self.setup(args)

    def setup(self, args: GemArgs) -> None:
        """What differs from Oat's learner after its own set-up."""
        self.args = args
        self.dataset_builder = GemTransitionDataset
        self.masked_aggregator = functools.partial(
            masked_sum, constant_normalizer=args.length_norm_constant or args.generate_max_length
        )
        # Oat 0.2.4 divides by a count of tokens that its reinforce branch leaves at zero. Its PPO branch gives the same
        # gradient where each ratio is held at 1, see get_batch_logps.
        self._hold_ratio = args.reinforce_update
        if args.reinforce_update:
            args.reinforce_update, args.tis_c = False, None
        self._places: list[Place] = []

    # -- data -------------------------------------------------------------------------------------------------

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """Place holders instead of a prompt dataset: ``max_train`` turns are trained on."""
        args = strategy.args
        self.prompts_dataset = PlaceHolders(max(args.max_train, args.rollout_batch_size))
        self.prompts_dataloader = strategy.setup_dataloader(
            self.prompts_dataset, args.rollout_batch_size_per_device, shuffle=False
        )
        self.eval_prompts_dataset = PlaceHolders(1)
        self.eval_prompts_dataloader = DataLoader(self.eval_prompts_dataset)

    def process_feedback_data(self, data_list: list[GemTransition]) -> None:
        """Takes a batch of turns."""
        self.query_step += len(data_list)
        self.pi_buffer.extend(data_list)
        if self.args.dump_all_buffer:  # Oat 0.2.4 builds a sample here without its token ids, which raises
            self.all_buffer.extend(data_list)

    # -- advantages and loss ----------------------------------------------------------------------------------

    def learning_step(self, trajectory: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Oat's updates on one batch; remembers which turn each row is."""
        self._places = trajectory["turns"]
        self._moments: dict[str, float] = {}
        infos: dict[str, torch.Tensor] = super().learning_step(trajectory)
        if self._hold_ratio:  # these compare with the policy at the start of the batch, which was not computed
            for name in [k for k in infos if k.startswith(("kl_sample_train", "sampler_learner", "logprobs_diff"))]:
                del infos[name]
        infos.update({k: torch.tensor(v) for k, v in self._moments.items()})
        return infos

    def compute_monte_carlo_advantages(self, rewards: torch.Tensor, response_masks: torch.Tensor) -> torch.Tensor:
        """One advantage a turn.

        Args:
            rewards: A turn's value on its last token (and a KL penalty's share on each), shape (turns, tokens).
            response_masks: Not read.

        Returns:
            Shape (turns,).
        """
        del response_masks
        values = rewards.sum(-1)
        if self.args.advantage != "rebn":
            return values
        advantages, moments = rebn(values, lambda x: cast(torch.Tensor, self.strategy.all_reduce(x, op="sum")))
        self._moments = {"return_mean": moments.mean, "return_std": moments.std}
        return advantages

    def compute_ppo_advantages(
        self, rewards: torch.Tensor, input_ids: torch.Tensor, att_mask: torch.Tensor, response_masks: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """GAE over turns instead of tokens.

        Returns:
            ``(advantages, value targets, values)``, each of shape (turns, tokens); the first two are the same on all
            of a turn's tokens and zero elsewhere.
        """
        size = self.args.train_batch_size_per_device
        with torch.no_grad():
            values = torch.cat(
                [
                    self.critic(input_ids=input_ids[i : i + size], attention_mask=att_mask[i : i + size])[:, :-1]
                    for i in range(0, len(input_ids), size)
                ]
            ).float()
        # Position p predicts token p + 1, so the first one of the mask is the last token of the turn's prompt.
        before = values.gather(1, response_masks.int().argmax(1, keepdim=True)).squeeze(1)
        scale = self.args.reward_scale
        places = [p._replace(reward=scale * p.reward, following=scale * p.following) for p in self._places]
        per_turn, per_target = turn_gae(places, before.tolist(), gamma=self.args.gamma, lam=self.args.lam)
        advantages = torch.tensor(per_turn, device=rewards.device)[:, None] * response_masks
        targets = torch.tensor(per_target, device=rewards.device)[:, None] * response_masks
        if self.args.whiten_adv:
            advantages = masked_whiten(advantages, response_masks)
        return advantages, targets, values

    def get_batch_logps(
        self,
        model: Any,
        input_ids: torch.Tensor,
        att_mask: torch.Tensor,
        temperature: float = 1.0,
        compute_entropy: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Oat's; with ``reinforce_update`` the values are zeros that carry the gradient of the log probabilities.

        The ratio of two such is 1 and its gradient that of the log probability: REINFORCE's, at every update.
        """
        logps, entropy = super().get_batch_logps(model, input_ids, att_mask, temperature, compute_entropy)
        return (logps - logps.detach() if self._hold_ratio else logps), entropy

    # -- evaluation -------------------------------------------------------------------------------------------

    def evaluate(self, dataloader: Any, steps: int) -> dict[str, float]:
        """Plays the held-out episodes of every environment in ``eval_envs``, shared out over the actors.

        Returns:
            ``eval/<env id>/<metric>`` and ``eval/average/<metric>`` for :data:`EVAL_METRICS`, the same on every rank.
            A metric that an environment does not report is NaN and left out of the average.
        """
        del dataloader
        started = time.perf_counter()
        env_ids = [i for i in self.args.eval_envs.split("|") if i]
        metrics = {f"eval/{e}/{m}": math.nan for e in env_ids for m in EVAL_METRICS}
        self._pre_evaluate()
        if self.strategy.is_rank_0():
            n = len(self.actors)
            futures = [actor.futures.evaluate_envs(i, n) for i, actor in enumerate(self.actors)]
            shares = [f.result() for f in futures]
            for env_id in env_ids:
                lines = [line for share in shares for line in share[env_id]]
                self._write_evaluation(env_id, steps, lines)
                summary = summarize(Episode.from_json(line) for line in lines)
                metrics.update({f"eval/{env_id}/{m}": summary[m] for m in EVAL_METRICS if m in summary})
        # Ranks without actors would otherwise wait on their GPUs for the whole evaluation.
        dist.barrier(group=self._same_actor_group)
        metrics = self.strategy.broadcast(metrics)
        self._post_evaluate()
        for m in EVAL_METRICS:
            known = [v for e in env_ids if not math.isnan(v := metrics[f"eval/{e}/{m}"])]
            metrics[f"eval/average/{m}"] = math.fsum(known) / len(known) if known else math.nan
        metrics["eval/elapse"] = time.perf_counter() - started
        return cast("dict[str, float]", metrics)

    def _write_evaluation(self, env_id: str, steps: int, lines: Sequence[str]) -> None:
        folder = os.path.join(self.save_path, "eval_results")
        os.makedirs(folder, exist_ok=True)
        name = f"{steps:05}-{env_id.replace(':', '_').replace('/', '_')}.jsonl"
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

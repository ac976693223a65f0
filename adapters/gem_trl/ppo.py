"""``GemPPOTrainer``: PPO with a critic of turns, on the code path of :class:`~gem_trl.GemGRPOTrainer`.

The critic is a copy of the policy's backbone with a linear head. It values the state that each turn acts in, read at
the last token before the turn's first sampled one; advantages are turn-level GAE (:func:`gem_core.advantages.gae`),
normalised over the turns of the batch. Everything else, the clipped ratio included, is the parent's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from gem_core.advantages import Array, Moments, gae, normalize
from gem_core.episode import Episode
from gem_trl.config import GemConfig
from gem_trl.rollouts import Row
from gem_trl.trainer import GemGRPOTrainer

_FILE = "critic.pt"


class TurnCritic(torch.nn.Module):
    """A backbone and a linear head that starts at zero, so that the first values are 0.0."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(model.base_model)
        reference = model.get_input_embeddings().weight
        self.head = torch.nn.Linear(model.config.get_text_config().hidden_size, 1)
        self.head.to(device=reference.device, dtype=torch.float32)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Values after each token, shape (rows, tokens)."""
        out = self.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        values: torch.Tensor = self.head(out.last_hidden_state.float())[..., 0]
        return values


class GemPPOTrainer(GemGRPOTrainer):
    """See the module; takes the arguments of :class:`~gem_trl.GemGRPOTrainer`.

    ``args.advantage`` must be ``"gae"``. The critic takes one AdamW step (``args.critic_learning_rate``) beside every
    step of the policy, on the same minibatch; checkpoints hold it. A truncated episode counts as over: what comes after
    its last turn is valued 0.0.

    Raises:
        ValueError: another advantage, PEFT, FSDP or DeepSpeed.
    """

    def __init__(self, model: Any, args: GemConfig, *positional: Any, **kwargs: Any) -> None:
        if args.advantage != "gae":
            raise ValueError(f"GemPPOTrainer computes advantage='gae', got {args.advantage!r}")
        if kwargs.get("peft_config") is not None:
            raise ValueError("GemPPOTrainer copies the policy's backbone for its critic and does not take peft_config")
        super().__init__(model, args, *positional, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError("GemPPOTrainer's critic is not sharded: run it without FSDP and DeepSpeed")
        self.critic = TurnCritic(self.model).to(self.accelerator.device)
        self._critic_optimizer = torch.optim.AdamW(
            self.critic.parameters(), lr=args.critic_learning_rate, betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon, weight_decay=0.0,
        )  # fmt: skip
        self._value_targets: list[Array] = []
        self.add_callback(_SaveCritic(self))

    # -- advantages -------------------------------------------------------------------------------------------

    def _advantages(self, episodes: Sequence[Episode]) -> list[Array]:
        values = self._values(episodes)
        args, kept = self.args, self._kept(episodes)
        advantages: list[Array] = []
        self._value_targets = []
        moments = Moments()
        for episode, value, k in zip(episodes, values, kept, strict=True):
            advantage, target = gae(episode.rewards, value, gamma=args.gamma, lam=args.gae_lambda)
            advantages.append(advantage)
            self._value_targets.append(target)
            if k:
                moments += Moments.of(advantage)
        moments = self._reduce_moments(moments)
        return [normalize(a, moments) if k else a * 0.0 for a, k in zip(advantages, kept, strict=True)]

    def _values(self, episodes: Sequence[Episode], rows_at_once: int = 32) -> list[list[float]]:
        """The critic's value of the state of each turn; a turn without a sampled token has none and takes 0.0."""
        values = [[0.0] * len(e.turns) for e in episodes]
        rows = [r for r in self._gem_rows if r.sequence is not None]
        rows.sort(key=lambda r: len(r.prompt_ids) + len(r.completion_ids))
        device = self.accelerator.device
        for start in range(0, len(rows), rows_at_once):
            part = rows[start : start + rows_at_once]
            width = max(len(r.prompt_ids) + len(r.completion_ids) for r in part)
            ids = torch.zeros((len(part), width), dtype=torch.long)
            attention = torch.zeros((len(part), width), dtype=torch.long)
            for i, r in enumerate(part):
                n = len(r.prompt_ids) + len(r.completion_ids)
                ids[i, :n] = torch.tensor(r.prompt_ids + r.completion_ids)
                attention[i, :n] = 1
            with torch.no_grad():
                out = self.critic(ids.to(device), attention.to(device)).cpu()
            for i, r in enumerate(part):
                for turn, column in turn_columns(r).items():
                    values[r.episode][turn] = float(out[i, len(r.prompt_ids) + column - 1])
        return values

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        # NaN where there is nothing to learn; one target a turn, at the column of its first sampled token.
        targets = torch.full(output["completion_ids"].shape, torch.nan)
        kept = self._kept(self._gem_episodes)
        for i, row in enumerate(self._gem_rows):
            if row.sequence is not None and kept[row.episode]:
                for turn, column in turn_columns(row).items():
                    targets[i, column] = float(self._value_targets[row.episode][turn])
        output["value_targets"] = targets.to(output["completion_ids"].device)
        return output

    # -- the update -------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if self.model.training and torch.is_grad_enabled():
            self._train_critic(inputs)
        return loss

    def _train_critic(self, inputs: dict[str, Any]) -> None:
        targets: torch.Tensor = inputs["value_targets"]
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        used = int(attention.any(0).nonzero()[-1]) + 1
        prompt = inputs["prompt_ids"].shape[1]
        values = self.critic(ids[:, :used], attention[:, :used])[:, prompt - 1 : -1]
        targets = targets[:, : values.shape[1]]
        known = ~targets.isnan()
        errors = (values - targets.nan_to_num())[known]
        loss = 0.5 * errors.square().sum() / max(1, int(known.sum()))
        self._critic_optimizer.zero_grad()
        loss.backward()
        if self.accelerator.num_processes > 1:
            for p in self.critic.parameters():
                p.grad = self.accelerator.reduce(p.grad, reduction="mean") if p.grad is not None else None
        torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.args.max_grad_norm)
        self._critic_optimizer.step()
        spread = float(targets[known].var()) if int(known.sum()) > 1 else 0.0
        self._metrics["train"]["critic_loss"].append(float(loss.detach()))
        if spread > 0:
            explained = 1.0 - float(errors.detach().var()) / spread
            self._metrics["train"]["explained_variance"].append(explained)

    # -- checkpoints ------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        parent: Any = super()
        parent._load_from_checkpoint(resume_from_checkpoint, model)
        state = torch.load(
            Path(resume_from_checkpoint) / _FILE, map_location=self.accelerator.device, weights_only=True
        )
        self.critic.load_state_dict(state["critic"])
        self._critic_optimizer.load_state_dict(state["optimizer"])


class _SaveCritic(TrainerCallback):
    def __init__(self, trainer: GemPPOTrainer) -> None:
        self._trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            t = self._trainer
            torch.save({"critic": t.critic.state_dict(), "optimizer": t._critic_optimizer.state_dict()}, folder / _FILE)


def turn_columns(row: Row) -> dict[int, int]:
    """For each turn with a sampled token in the row, the column of its first one (in ``completion_ids``)."""
    assert row.sequence is not None
    columns: dict[int, int] = {}
    for column, turn in enumerate(row.sequence.turn_index):
        if turn >= 0:
            columns.setdefault(turn, column)
    return columns

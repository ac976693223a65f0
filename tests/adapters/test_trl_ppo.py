"""PPO through TRL's trainer: what the critic is given, what it says, and that a resumed run goes on with it."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from contract import EOS, episodes
from gem_trl import GemConfig, GemGRPOTrainer, GemPPOTrainer
from gem_trl.ppo import turn_columns
from gem_trl.rollouts import rows_of

from gem_core.advantages import EPS, gae
from gem_core.tiny import build_tiny, warm_start

ENV = "game:GuessTheNumber-v0"


@pytest.fixture(scope="module")
def base() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    model, tokenizer = build_tiny(seed=0, hidden_size=32, num_layers=1, num_heads=1)
    warm_start(model, tokenizer, ENV, steps=60, episodes_per_step=8, warmup_steps=10, learning_rate=1e-2)
    return model, tokenizer


def trainer_of(base: tuple[Any, Any], path: Path, kind: Any = GemPPOTrainer, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "output_dir": str(path),
        "env_id": ENV,
        "env_kwargs": {"max_turns": 4},
        "advantage": "gae",
        "max_tokens_per_turn": 5,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "critic_learning_rate": 1e-2,
        "gamma": 0.8,
        "gae_lambda": 0.9,
        "max_grad_norm": 10.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **changes,
    }
    return kind(copy.deepcopy(base[0]), GemConfig(**values), base[1])


def test_each_turns_state_ends_before_its_first_sampled_token() -> None:
    batch = episodes(50)
    for row in rows_of(batch, [True] * len(batch), EOS):
        if row.sequence is None:
            continue
        for turn, column in turn_columns(row).items():
            n = len(batch[row.episode].turns[turn].response_ids)
            assert tuple(row.completion_ids[column : column + n]) == batch[row.episode].turns[turn].response_ids
            assert row.mask[column] == 1
            assert column == 0 or row.sequence.turn_index[column - 1] != turn


@pytest.mark.l2
@pytest.mark.parametrize("context", ["append", "rebuild"])
def test_advantages_and_targets_are_turn_level_gae(base: tuple[Any, Any], tmp_path: Path, context: str) -> None:
    trainer = trainer_of(base, tmp_path, context=context)
    generator = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(trainer.critic.head.weight, generator=generator)  # values that differ
    trainer.model.train()
    output = trainer._generate_and_score_completions([{"prompt": [{"role": "user", "content": ""}]}] * 8)
    expected = []
    for index, episode in enumerate(trainer._gem_episodes):
        values = [0.0] * len(episode.turns)
        for row in trainer._gem_rows:
            if row.episode != index or row.sequence is None:
                continue
            ids = torch.tensor([row.prompt_ids + row.completion_ids])
            with torch.no_grad():
                out = trainer.critic(ids, torch.ones_like(ids))[0]  # alone, without padding
            for turn, column in turn_columns(row).items():
                values[turn] = float(out[len(row.prompt_ids) + column - 1])
        assert len(set(values)) == len(values)
        expected.append(gae(episode.rewards, values, gamma=0.8, lam=0.9))
    flat = np.concatenate([a for a, _ in expected])
    for i, row in enumerate(trainer._gem_rows):
        if row.sequence is None:
            continue
        advantages, targets = expected[row.episode]
        for turn, column in turn_columns(row).items():
            want = (advantages[turn] - flat.mean()) / (flat.std() + EPS)
            assert float(output["advantages"][i, column]) == pytest.approx(want, abs=1e-4)
            assert float(output["value_targets"][i, column]) == pytest.approx(targets[turn], abs=1e-4)
        known = ~output["value_targets"][i].isnan()
        assert int(known.sum()) == len(turn_columns(row))


@pytest.mark.l3
def test_the_critic_learns_beside_the_policy(base: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = trainer_of(base, tmp_path, max_steps=24)
    policy = [p.detach().clone() for p in trainer.model.parameters()]
    losses: list[float] = []
    train_critic = trainer._train_critic

    def watched(inputs: dict[str, Any]) -> None:
        train_critic(inputs)
        losses.append(trainer._metrics["train"]["critic_loss"][-1])

    trainer._train_critic = watched
    trainer.train()
    assert len(losses) == 24
    assert sum(losses[-6:]) < 0.7 * sum(losses[:6])
    assert any(not torch.equal(a, b) for a, b in zip(policy, trainer.model.parameters(), strict=True))


@pytest.mark.l3
def test_a_checkpoint_holds_the_critic(base: tuple[Any, Any], tmp_path: Path) -> None:
    whole = trainer_of(base, tmp_path / "whole")
    whole.train()
    trainer_of(base, tmp_path / "parts", save_strategy="steps", save_steps=2).train()
    resumed = trainer_of(base, tmp_path / "parts", save_strategy="steps", save_steps=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    for a, b in zip(whole.critic.parameters(), resumed.critic.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_gae_needs_the_ppo_trainer_and_the_ppo_trainer_gae(base: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use GemPPOTrainer"):
        trainer_of(base, tmp_path, GemGRPOTrainer)
    with pytest.raises(ValueError, match="got 'rebn'"):
        trainer_of(base, tmp_path, advantage="rebn")
    with pytest.raises(ValueError, match="gae_lambda must lie in 0 to 1"):
        trainer_of(base, tmp_path, gae_lambda=1.5)

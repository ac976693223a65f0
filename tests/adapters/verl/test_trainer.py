"""verl's real trainer (``main_ppo``: Ray, FSDP2, TransferQueue, weight updates) on a CPU, two or three steps each.

About a minute and a half a run on two cores, most of it start-up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "train_verl_rebn.py"
SMALL = """
data.train_batch_size=8
actor_rollout_ref.actor.ppo_mini_batch_size=4
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4
critic.ppo_micro_batch_size_per_gpu=4
actor_rollout_ref.rollout.full_determinism=True
data.gem.val_size=8
trainer.val_before_train=False
trainer.test_freq=-1
trainer.total_training_steps=2
trainer.rollout_data_dir={folder}/rollouts
"""
MIX = (
    "data.gem.env_id=null",
    "data.gem.env_kwargs=null",
    "+data.gem.envs=[{env_id: 'game:GuessTheNumber-v0', kwargs: {max_turns: 4}, weight: 2},"
    "{env_id: 'test:Flaky-v0', weight: 2}, {env_id: 'game:Wordle-v0-easy', kwargs: {max_turns: 3}}]",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Run:
    """One finished run: its metrics by step and which episodes each step trained on."""

    def __init__(self, folder: Path, returncode: int) -> None:
        self.folder, self.returncode = folder, returncode
        lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
        self.steps: dict[int, dict[str, float]] = {}
        for line in lines:
            record = json.loads(line)
            self.steps.setdefault(record["step"], {}).update(record["data"])

    def episodes(self, step: int) -> Counter[str]:
        rows = (self.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()
        return Counter(json.loads(row)["gts"] for row in rows)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gem_core.tiny import build_tiny, save_tiny, warm_start

    model, tokenizer = build_tiny(0, ["game:GuessTheNumber-v0"])
    warm_start(model, tokenizer, "game:GuessTheNumber-v0", {"max_turns": 4}, steps=30, episodes_per_step=16)
    return save_tiny(model, tokenizer, tmp_path_factory.mktemp("tiny") / "tiny-seed0")


def train(folder: Path, tiny: Path, *overrides: str, expect: int = 0) -> Run:
    shutil.copytree(tiny, folder / tiny.name, dirs_exist_ok=True)
    modules = {"VERL_USE_EXTERNAL_MODULES": "flaky_envs", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--output_dir", folder, *SMALL.format(folder=folder).split(), *overrides],
        env={**os.environ, **modules},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=850,
    )
    (folder / "log").write_text(done.stdout)
    assert done.returncode == expect, done.stdout[-6000:]
    return Run(folder, done.returncode)


def check(run: Run, steps: int = 2) -> dict[str, float]:
    """What holds for every run; returns the last step's metrics."""
    assert set(range(1, steps + 1)) <= set(run.steps)
    for step in range(1, steps + 1):
        metrics = run.steps[step]
        on_policy = metrics.get("training/off_policy/trajectory_staleness_worst/max", 0) == 0
        if on_policy:
            assert 0.0 <= metrics["training/rollout_probs_diff_max"] < 1e-3
        if "gem/success" in metrics:
            assert 0.0 <= metrics["gem/rollout_log_prob_diff_max"] < (1e-3 if on_policy else 10.0)
            assert 0.0 <= metrics["gem/success"] <= 1.0
            assert sum(v for k, v in metrics.items() if k.startswith("gem/stop/")) == pytest.approx(1.0)
    # A step whose episodes all had the same return has no gradient.
    assert max(run.steps[s]["actor/grad_norm"] for s in range(1, steps + 1)) > 0.0
    return run.steps[steps]


def test_rebn_on_a_mix_with_a_failing_env_validates_and_resumes(tmp_path: Path, tiny: Path) -> None:
    """A mix of envs; failed resets and steps cost only their episodes; a resumed run goes on with the same batch."""
    settings = (*MIX, "trainer.total_training_steps=3", "trainer.save_freq=2", "trainer.test_freq=3")
    first = train(tmp_path, tiny, *settings)
    last = check(first, 3)
    ids = Counter(e.split("#")[0] for step in (1, 2, 3) for e in first.episodes(step).elements())
    assert set(ids) == {"game:GuessTheNumber-v0", "test:Flaky-v0", "game:Wordle-v0-easy"}
    assert any(first.steps[s].get("gem/stop/env_error", 0.0) > 0.0 for s in (1, 2, 3))
    for env_id in ids:  # held-out seeds, each env apart
        assert any(k.startswith(f"val-aux/{env_id}/success/") for k in last), [k for k in last if k.startswith("val")]
    seeds = {int(e.split("#")[1]) for step in (1, 2, 3) for e in first.episodes(step)}
    assert max(seeds) < 1_000_000_000

    again = train(
        tmp_path,
        tiny,
        *settings,
        f"trainer.rollout_data_dir={tmp_path}/resumed",
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={tmp_path}/global_step_2",
    )
    assert not (tmp_path / "resumed" / "2.jsonl").exists()
    resumed = Counter(json.loads(r)["gts"] for r in (tmp_path / "resumed" / "3.jsonl").read_text().splitlines())
    assert resumed == first.episodes(3)
    assert set(again.steps) == {3}


@pytest.mark.parametrize("mode", ["gem_sync", "sync"])
def test_ppo_with_a_critic(tmp_path: Path, tiny: Path, mode: str) -> None:
    """verl's GAE over tokens in its own mode, over turns in ours; one sequence a turn."""
    last = check(
        train(
            tmp_path,
            tiny,
            "algorithm.adv_estimator=gae",
            f"trainer.v1.trainer_mode={mode}",
            "data.gem.context=rebuild",
            "data.gem.wrappers=concat_with_action",
            "data.gem.env_kwargs.max_turns=4",
        )
    )
    assert last["critic/vf_loss"] > 0.0
    assert ("gem/turns" in last) == (mode == "gem_sync")


@pytest.mark.parametrize(
    ("estimator", "mode"),
    [("grpo", "gem_sync"), ("rloo", "sync"), ("reinforce_plus_plus", "sync"), ("gem_grpo_turn", "gem_sync")],
)
def test_group_estimators(tmp_path: Path, tiny: Path, estimator: str, mode: str) -> None:
    run = train(
        tmp_path,
        tiny,
        f"algorithm.adv_estimator={estimator}",
        f"trainer.v1.trainer_mode={mode}",
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    )
    check(run)
    assert set(run.episodes(1).values()) == {4}  # four sessions of each seed


def test_episodes_go_on_over_weight_updates(tmp_path: Path, tiny: Path) -> None:
    run = train(tmp_path, tiny, "trainer.v1.trainer_mode=gem_colocate_async", "trainer.total_training_steps=4")
    check(run, 4)
    # The second batch was begun before the first update.
    assert run.steps[2]["training/off_policy/trajectory_staleness_worst/max"] >= 1

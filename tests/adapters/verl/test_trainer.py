"""verl's real trainer (``main_ppo``: Ray, FSDP2, TransferQueue, weight updates) on a CPU, a few steps each.

Five runs of about a minute on two cores, most of it start-up; so each run covers as much as it can.
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

pytestmark = [pytest.mark.l3, pytest.mark.slow, pytest.mark.timeout(900)]


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
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    modules = {"VERL_USE_EXTERNAL_MODULES": "flaky_envs,probe_trainer", "PYTHONPATH": os.pathsep.join(paths)}
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
        "trainer.test_freq=-1",
        f"trainer.rollout_data_dir={tmp_path}/resumed",
        "trainer.resume_mode=resume_path",
        f"trainer.resume_from_path={tmp_path}/global_step_2",
    )
    assert not (tmp_path / "resumed" / "2.jsonl").exists()
    resumed = Counter(json.loads(r)["gts"] for r in (tmp_path / "resumed" / "3.jsonl").read_text().splitlines())
    assert resumed == first.episodes(3)
    assert set(again.steps) == {3}


def test_every_estimator_with_a_critic_and_a_rebuilt_context(tmp_path: Path, tiny: Path) -> None:
    """One step each; a row a turn, groups of four. Failed episodes are masked (the default), truncated ones kept."""
    from probe_trainer import ESTIMATORS

    run = train(
        tmp_path,
        tiny,
        *MIX[:2],
        "+data.gem.envs=[{env_id: 'game:GuessTheNumber-v0', kwargs: {max_turns: 3}, weight: 3},"
        "{env_id: 'test:Flaky-v0'}]",
        "algorithm.adv_estimator=gae",
        "critic.enable=True",
        "trainer.v1.trainer_mode=probe",
        f"trainer.total_training_steps={len(ESTIMATORS)}",
        "data.gem.context=rebuild",
        "data.gem.wrappers=concat_with_action",
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "critic.ppo_mini_batch_size=2",
    )
    check(run, len(ESTIMATORS))
    for step, name in enumerate(ESTIMATORS, start=1):
        metrics = run.steps[step]
        assert metrics["probe/advantage_outside_max"] == 0.0, name
        assert metrics.get("probe/loss_tokens/env_error", 0.0) == 0.0, name
        assert metrics["critic/vf_loss"] >= 0.0
        assert min(run.episodes(step).values()) >= 4  # four sessions of each seed, a row a turn
    assert max(m["probe/advantage_max"] for m in run.steps.values()) > 0.0
    assert sum(m.get("gem/stop/env_error", 0.0) for m in run.steps.values()) > 0.0
    assert sum(m.get("probe/loss_tokens/truncated", 0.0) for m in run.steps.values()) > 0.0


def test_turns_differ_and_the_loss_takes_truncated_and_failed_episodes_by_option(tmp_path: Path, tiny: Path) -> None:
    run = train(
        tmp_path,
        tiny,
        *MIX,
        "trainer.v1.trainer_mode=probe_rebn",
        "data.train_batch_size=16",
        "data.gem.truncated_loss=mask",
        "data.gem.failed_loss=keep",
    )
    check(run)
    assert all(m["probe/advantage_outside_max"] == 0.0 for m in run.steps.values())
    assert sum(m["probe/rows_with_turns_that_differ"] for m in run.steps.values()) > 0.0
    assert sum(m.get("gem/stop/truncated", 0.0) + m.get("gem/stop/max_turns", 0.0) for m in run.steps.values()) > 0.0
    for reason in ("truncated", "max_turns"):
        assert sum(m.get(f"probe/loss_tokens/{reason}", 0.0) for m in run.steps.values()) == 0.0
    assert sum(m.get("probe/loss_tokens/env_error", 0.0) for m in run.steps.values()) > 0.0


def test_verls_own_trainer_mode_takes_the_rows(tmp_path: Path, tiny: Path) -> None:
    """Only the drop-in: verl's ``sync`` mode and its ``reinforce_plus_plus``, no class of ours in the trainer."""
    last = check(train(tmp_path, tiny, "algorithm.adv_estimator=reinforce_plus_plus", "trainer.v1.trainer_mode=sync"))
    assert "gem/turns" not in last
    assert last["training/num_turns/mean"] > 1.0


def test_episodes_go_on_over_weight_updates(tmp_path: Path, tiny: Path) -> None:
    """Generations that a weight update interrupts are resumed in the same turn, under the new weights."""
    run = train(tmp_path, tiny, "trainer.v1.trainer_mode=gem_colocate_async", "trainer.total_training_steps=4")
    check(run, 4)
    # The second batch was begun before the first update.
    assert run.steps[2]["training/off_policy/trajectory_staleness_worst/max"] >= 1


@pytest.mark.l4
def test_the_examples_success_rises(tmp_path: Path) -> None:
    """The example as a user runs it."""
    env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--output_dir", tmp_path],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    run = Run(tmp_path, done.returncode)
    steps = sorted(s for s in run.steps if "gem/success" in run.steps[s])
    success = [run.steps[s]["gem/success"] for s in steps]
    before, after = sum(success[:3]) / 3, sum(success[-3:]) / 3
    gap = max(run.steps[s]["gem/rollout_log_prob_diff_max"] for s in steps)
    print(f"training success {before:.3f} -> {after:.3f} in {len(steps)} steps; largest log-probability gap {gap:.1e}")
    assert after >= before + 0.2
    assert gap < 1e-3

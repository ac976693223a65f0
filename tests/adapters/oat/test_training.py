"""Optimizer steps in Oat's own learner, on a tiny model; and Oat's whole program."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_core.episode import Episode

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "train_oat_rebn.py"
SMALL = """
--gpus 1 --no-bf16 --no-flash_attn --no-gradient_checkpointing --no-vllm_sleep --no-enable_prefix_caching
--no-use_fused_lm_head --shm_size_mb 200 --wrappers request_once --context append --max_model_len 512
--generate_max_length 5 --eval_generate_max_length 5 --eval_temperature 0 --no-rnd_seed
--eval_envs game:GuessTheNumber-v0 --eval_wrappers request_once
"""


@pytest.mark.l3
@pytest.mark.parametrize("advantage", ["rebn", "rloo", "ppo"])
def test_real_updates_and_equal_log_probabilities(
    advantage: str, make_args: Any, make_learner: Any, make_actor: Any, take: Any
) -> None:
    args = make_args(advantage=advantage, group_size=4, critic_learning_rate=1e-3)
    learner, actor = make_learner(args), make_actor(args)
    model = learner.model.model.module
    for round_number in (1, 2):
        before = copy.deepcopy(model.state_dict())
        batch = take(actor)
        learner.process_feedback_data(batch)
        info = learner.learn(round_number)
        assert all(math.isfinite(v) for v in info.values())
        # What the sampler said of its tokens is what the learner says of them before the first update.
        assert max(info["train/sampler_learner_prob_diff_max"], -info["train/sampler_learner_prob_diff_min"]) < 1e-5
        assert info["train/policy_grad_norm"] > 0
        after = model.state_dict()
        assert [k for k in after if torch.equal(after[k], before[k])] == []
        # The sampler gets the new weights, by the way that vLLM's workers take them.
        actor.llm._load_weights(list(model.named_parameters()))
    assert learner.query_step == 32


TWO = """
--gpus 2 --rollout_batch_size_per_device 16 --train_batch_size_per_device 8 --train_batch_size 32 --num_envs 8
--max_train 96 --learning_rate 1e-3 --eval_steps 2 --eval_episodes 6 --dump_episodes_every 1
"""


def run_program(folder: Path, tiny: str, options: str, *, devices: int = 1, timeout: float = 800) -> tuple[Path, str]:
    """The example, as a user runs it: Oat's program of processes. Returns the run's folder and the output."""
    turns = '{"max_turns": 8}'
    command = [sys.executable, str(EXAMPLE), "game", "--pretrain", tiny, "--save_path", str(folder), *SMALL.split()]
    command += ["--instruction", "", "--env_kwargs", turns, "--eval_env_kwargs", turns, *options.split()]
    env = {**os.environ, "OAT_CPU_DEVICES": str(devices)}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (run,) = [p for p in folder.iterdir() if p.is_dir()]
    return run, done.stdout


def metric(output: str, name: str) -> list[float]:
    """A metric's values in the learner's log, in their order."""
    return [float(x) for x in re.findall(rf"'{re.escape(name)}': ([-+.\deinfa]+)", output)]


@pytest.mark.l3
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_program_with_two_actors_and_two_learners(tmp_path: Path, tiny: str) -> None:
    run, output = run_program(tmp_path, tiny, TWO, devices=2)
    # The second and third batches were sampled with weights that came from the learner over the process group.
    assert len(metric(output, "misc/pi_beta_version")) >= 3
    assert max(metric(output, "train/sampler_learner_prob_diff_max")) < 1e-5
    assert min(metric(output, "train/sampler_learner_prob_diff_min")) > -1e-5
    played = {p.name: [Episode.from_json(x) for x in p.read_text().splitlines()] for p in run.glob("episodes/*.jsonl")}
    assert len(played) == 6  # three steps of two actors
    assert len({e.seed for es in played.values() for e in es}) == sum(map(len, played.values()))
    held_out = [[json.loads(x) for x in p.read_text().splitlines()] for p in sorted(run.glob("eval_results/*.jsonl"))]
    assert [len(episodes) for episodes in held_out] == [6] * len(held_out)
    success = metric(output, "eval/game:GuessTheNumber-v0/success")
    assert success[0] == pytest.approx(sum(e["success"] for e in held_out[0]) / 6, abs=1e-6)

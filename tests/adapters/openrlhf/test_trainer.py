"""OpenRLHF's real trainer (Ray, vLLM, DeepSpeed, weight updates) on a CPU, through the example and the launcher.

About two minutes of each run are start-up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "train_openrlhf_rebn.py"
ITERATIONS = 20
#: Mean of a sampled token's difference in log probability between engine and actor, both in bfloat16, in any iteration.
#: test_engine_and_actor.py shows what bfloat16 makes of a token and what an engine with old weights would show.
BF16_MEAN = 0.02

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Run:
    """One finished run and its TensorBoard scalars by name, one a step."""

    def __init__(self, folder: Path, log: str, returncode: int) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.folder, self.log, self.returncode = folder, log, returncode
        self.scalars: dict[str, list[float]] = {}
        for events in (folder / "tensorboard").glob("*"):
            found = EventAccumulator(str(events))
            found.Reload()
            for tag in found.Tags()["scalars"]:
                self.scalars[tag] = [s.value for s in found.Scalars(tag)]

    def __getitem__(self, name: str) -> list[float]:
        return self.scalars.get(name, [])


def train(folder: Path, *arguments: str, tiny: Path | None = None) -> Run:
    if tiny is not None:
        shutil.copytree(tiny, folder / tiny.name)
    command = [sys.executable, str(EXAMPLE), "--output_dir", str(folder), *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "OPENRLHF_CPU"}  # the example switches it on itself
    done = subprocess.run(
        command, env=environment, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    run = Run(folder, done.stdout, done.returncode)
    if run.returncode or not run["train/gem/success"]:
        pytest.fail(f"exit status {run.returncode}\n{done.stdout[-6000:]}")
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    done = train(tmp_path_factory.mktemp("example") / "run", "--iterations", str(ITERATIONS))
    names = ("gem/success", "gem/return", "gem/rollout_log_prob_diff_max", "gem/rollout_log_prob_diff_mean")
    for name in (*names, "actor_grad_norm", "timing/step_total"):
        print(name, [round(v, 4) for v in done[f"train/{name}"]])
    return done


@pytest.mark.l3
def test_the_example_trains_and_saves_a_model(run: Run) -> None:
    assert len(run["train/gem/success"]) == ITERATIONS
    assert all(v > 0.0 for v in run["train/actor_grad_norm"])
    assert all(v == 0.0 for v in run["train/gem/failed"])
    assert (run.folder / "model" / "config.json").exists()


@pytest.mark.l3
def test_after_every_update_the_engine_samples_from_the_actors_weights(run: Run) -> None:
    gaps = run["train/gem/rollout_log_prob_diff_mean"]
    assert len(gaps) == ITERATIONS
    assert max(gaps) < BF16_MEAN


@pytest.mark.l4
def test_the_success_rate_rises(run: Run) -> None:
    success = run["train/gem/success"]
    assert sum(success[-3:]) / 3 > sum(success[:3]) / 3 + 0.05


@pytest.mark.l3
def test_a_mix_with_failing_envs_evaluation_and_groups(tmp_path: Path, run: Run) -> None:
    """Resets and steps that raise, a step that hangs, an env that cannot be built: the run goes on."""
    from gem_openrlhf.dataset import EnvChoice, rows, write

    agent = tmp_path / "agent.py"
    agent.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport flaky_envs, hanging_env\n"
        "from gem_openrlhf import GemAgentExecutor as AgentExecutor\n"
    )
    mix = [
        EnvChoice("game:GuessTheNumber-v0", {"max_turns": 4}, 2.0),
        EnvChoice("test:Flaky-v0", {}, 2.0),
        EnvChoice("test:Hanging-v0"),
    ]
    settings = {"env_timeout_s": 1.0}
    write(tmp_path / "mix.jsonl", rows(mix, 24, settings=settings))
    write(tmp_path / "held_out.jsonl", rows(mix[:1], 8, seed=10**9, settings=settings))
    (made,) = run.folder.glob("tiny-seed*")
    done = train(
        tmp_path / "run",
        *f"""
        --iterations 2 --train.agent_func_path {agent} --data.prompt_dataset {tmp_path / "mix.jsonl"}
        --algo.advantage.estimator gem_grpo_turn
        --rollout.batch_size 12 --rollout.n_samples_per_prompt 2 --rollout.micro_batch_size 8
        --train.batch_size 24 --train.micro_batch_size 8 --train.max_epochs 1
        --eval.dataset {tmp_path / "held_out.jsonl"} --eval.steps 1 --eval.n_samples_per_prompt 2
        """.split(),
        tiny=made,
    )
    labels = [json.loads(json.loads(r)["label"]) for r in (tmp_path / "mix.jsonl").read_text().splitlines()]
    broken = [
        x["env_id"] == "test:Hanging-v0" or (x["env_id"] == "test:Flaky-v0" and x["seed"] % 3 in (0, 1)) for x in labels
    ]
    # OpenRLHF shuffles its rows: the two steps together see each of them once.
    assert sum(done["train/gem/failed"]) * 12 == pytest.approx(sum(broken))
    assert len(done["train/gem/failed"]) == 2
    assert len(done["eval/gem/success"]) == 2
    assert len(done["eval/eval_game:GuessTheNumber-v0_pass1"]) == 2

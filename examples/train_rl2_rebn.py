"""Trains an agent on a GEM environment with RL2's own trainer and REINFORCE with return batch normalization.

On a CPU, from a checkout of gem-adapters (the tiny model; ci/rl2_cpu stands in for SGLang and flash-attn):

    python examples/train_rl2_rebn.py

On GPUs (RL2's own overrides go after the model):

    python examples/train_rl2_rebn.py --model Qwen/Qwen3-1.7B-Base --gpus 8 actor.optimizer.lr=1e-6

Runs with RL2's repository (`export PYTHONPATH=/path/to/RL2`, or installed from there) and with rl-square 0.0.2. The
command that it prints is RL2's own launch; nothing else is needed to train without this file.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import gem_rl2
from gem_rl2 import dataset

LAUNCH = Path(__file__).resolve().parents[1] / "ci" / "rl2_cpu" / "launch.py"

#: The tiny model's recipe: short episodes, large steps. Names of both contracts; each takes its own.
TINY = {
    "max_new_tokens": 5,
    "prompts": 32,
    "responses": 4,
    "length": 2048,
    "max_turns": 8,
    "lr": 2e-3,
    "update_per_rollout": 4,
    "gamma": 0.8,
    "wrappers": "request_once",
}
#: A starting point for a model of a billion parameters.
LARGE = {
    "max_new_tokens": 1024,
    "prompts": 64,
    "responses": 1,
    "length": 8192,
    "max_turns": 8,
    "lr": 1e-6,
    "update_per_rollout": 1,
    "gamma": 0.9,
    "wrappers": "",
}


def overrides(recipe: dict[str, object], train: Path, test: Path, model: str, iterations: int, cpu: bool) -> list[str]:
    """RL2's configuration, in the words of the RL2 that is installed."""
    common = {
        "actor.model_name": model,
        "actor.max_length_per_device": recipe["length"],
        "actor.update_per_rollout": recipe["update_per_rollout"],
        "adv.gamma": recipe["gamma"],
        "trainer.project": "gem",
        "trainer.experiment_name": "rl2_rebn",
        "trainer.use_wandb": "false",
        "rollout.env_path": gem_rl2.ENV_PATH,
        "+gem.estimator": "rebn",
        "+gem.max_turns": recipe["max_turns"],
        "+gem.wrappers": recipe["wrappers"] or "''",
    }
    if gem_rl2.contract() == "repository":
        own: dict[str, object] = {
            "rollout.train.path": train,
            "rollout.train.prompts_per_rollout": recipe["prompts"],
            "rollout.train.responses_per_prompt": recipe["responses"],
            "rollout.train.sampling_params.max_new_tokens": recipe["max_new_tokens"],
            # ReBN compares turns of the whole batch: a group whose episodes came out alike still tells something.
            "rollout.train.dynamic_filtering": "false",
            "rollout.test.path": test,
            "actor.optimizer.lr": recipe["lr"],
            "actor.scheduler.min_lr": recipe["lr"],
            "trainer.total_steps": iterations,
            "trainer.test_freq": max(1, iterations // 2),
        }
        if cpu:
            own |= {"actor.dtype": "float32", "actor.enable_gradient_checkpointing": "false"}
    else:
        own = {
            "train_data.path": train,
            "train_data.prompts_per_rollout": recipe["prompts"],
            "train_data.responses_per_prompt": recipe["responses"],
            "test_data.path": test,
            "rollout.train_sampling_params.max_new_tokens": recipe["max_new_tokens"],
            "rollout.dynamic_filtering": "false",
            "rollout.max_turns": recipe["max_turns"],
            "actor.lr": recipe["lr"],
            "trainer.n_epochs": 1,
            "trainer.test_freq": max(1, iterations // 2),
        }
        if cpu:
            own |= {"rollout.server_args.dtype": "float32", "actor.gradient_checkpointing": "false"}
    if cpu:  # there is no GPU's memory to spare
        own |= {"actor.offload_model": "false", "actor.offload_optimizer": "false"}
    return [f"{k}={v}" for k, v in (common | own).items()]


def tiny_model(folder: Path, env_id: str, seed: int) -> Path:
    """Builds the tiny model with its short supervised warm start, once for each folder."""
    if (folder / "config.json").exists():
        return folder
    import gem_core as gem
    from gem_core.tiny import build_tiny, save_tiny, warm_start
    from gem_core.wrappers.compact import RequestOnce

    model, tokenizer = build_tiny(seed, [env_id])
    warm_start(model, tokenizer, RequestOnce(gem.make(env_id, max_turns=8)), seed=seed)
    return save_tiny(model, tokenizer, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model's name or folder; default: the tiny model, on a CPU")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--env", default="game:GuessTheNumber-v0")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/rl2_rebn"))
    args, more = parser.parse_known_args()

    recipe, out = (LARGE if args.model else TINY), args.output_dir.resolve()
    kwargs = {} if args.model else {args.env: {"max_turns": recipe["max_turns"]}}
    rows = args.iterations * int(str(recipe["prompts"]))
    train = dataset.write(out / "train.jsonl", args.env, rows, kwargs=kwargs, seed=args.seed)
    test = dataset.write(out / "test.jsonl", args.env, 64, kwargs=kwargs, seed=args.seed, held_out=True)
    if args.model and Path(args.model).is_dir():
        args.model = str(Path(args.model).resolve())  # RL2 runs in the output folder
    model = args.model or str(tiny_model(out / f"tiny-seed{args.seed}", args.env, args.seed))
    launch = ["torchrun", f"--nproc_per_node={args.gpus}", "-m", "gem_rl2.trainer"]
    command = launch if args.model else [sys.executable, str(LAUNCH)]
    command += [*overrides(recipe, train, test, model, args.iterations, cpu=not args.model), *more]
    print(shlex.join(command), flush=True)
    sys.exit(subprocess.run(command, cwd=out, env=os.environ | {"HYDRA_FULL_ERROR": "1"}).returncode)


if __name__ == "__main__":
    main()

"""Trains an agent on a GEM environment with verl's own trainer and REINFORCE with return batch normalization.

On a laptop, a few minutes on two cores, nothing downloaded:

    python examples/train_verl_rebn.py

On eight GPUs (verl's and Hydra's own overrides go after the model):

    python examples/train_verl_rebn.py --model Qwen/Qwen3-1.7B-Base trainer.n_gpus_per_node=8

The configuration is examples/verl_gem.yaml; this file adds the tiny model and what a CPU needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: The tiny model's game and recipe: short episodes, large batches, two passes over four mini-batches of each batch.
TINY = """
+data.gem.env_kwargs.max_turns=8
data.gem.wrappers=request_once
data.gem.max_tokens_per_turn=5
data.gem.val_size=256
data.train_batch_size=256
data.max_prompt_length=128
data.max_response_length=256
data.dataloader_num_workers=0
algorithm.gamma=0.8
actor_rollout_ref.actor.ppo_mini_batch_size=64
actor_rollout_ref.actor.ppo_epochs=2
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64
actor_rollout_ref.actor.optim.lr=1.5e-3
actor_rollout_ref.actor.optim.lr_warmup_steps=4
actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
actor_rollout_ref.actor.optim.min_lr_ratio=0.1
actor_rollout_ref.actor.optim.zero_indexed_step=False
actor_rollout_ref.actor.optim.override_optimizer_config={eps:1e-6}
actor_rollout_ref.actor.optim.weight_decay=0.0
actor_rollout_ref.actor.optim.betas=[0.9,0.99]
actor_rollout_ref.actor.loss_agg_mode=token-mean
actor_rollout_ref.actor.grad_clip=0.5
critic.optim.lr=2e-3
critic.optim.weight_decay=0.0
critic.ppo_mini_batch_size=64
critic.ppo_micro_batch_size_per_gpu=64
trainer.total_training_steps=30
trainer.test_freq=30
trainer.save_freq=-1
"""

#: verl's trainer on one CPU process: gem_verl.cpu's platform and server, float32 throughout.
CPU = """
trainer.device=cpu
trainer.n_gpus_per_node=1
trainer.nnodes=1
trainer.logger=["console","file"]
actor_rollout_ref.model.use_remove_padding=False
+actor_rollout_ref.model.override_config.attn_implementation=sdpa
actor_rollout_ref.model.enable_gradient_checkpointing=False
actor_rollout_ref.actor.strategy=fsdp2
actor_rollout_ref.actor.use_torch_compile=False
actor_rollout_ref.actor.fsdp_config.dtype=float32
+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32
+actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype=fp32
actor_rollout_ref.rollout.name=gem_cpu
actor_rollout_ref.rollout.tensor_model_parallel_size=1
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=256
actor_rollout_ref.rollout.full_determinism=True
critic.strategy=fsdp2
critic.model.use_remove_padding=False
critic.model.enable_gradient_checkpointing=False
+critic.model.override_config.attn_implementation=sdpa
critic.fsdp.dtype=float32
critic.fsdp.use_torch_compile=False
+critic.fsdp.mixed_precision.param_dtype=fp32
+critic.fsdp.mixed_precision.reduce_dtype=fp32
+critic.fsdp.mixed_precision.buffer_dtype=fp32
actor_rollout_ref.rollout.free_cache_engine=False
actor_rollout_ref.rollout.agent.num_workers=1
reward.num_workers=1
transfer_queue.backend.SimpleStorage.num_data_storage_units=1
+ray_kwargs.ray_init.address=local
ray_kwargs.ray_init.num_cpus=32
+ray_kwargs.ray_init.num_gpus=1
+ray_kwargs.ray_init.include_dashboard=False
"""
CPU_ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": "gem_verl.cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "OMP_NUM_THREADS": "1",
    # Ray gives a node up that is silent for half a minute, as a busy laptop may be.
    "RAY_health_check_timeout_ms": "60000",
    "RAY_health_check_failure_threshold": "20",
}


def tiny_model(folder: Path, seed: int) -> Path:
    """Builds the tiny model with its short supervised warm start, once for each folder."""
    if (folder / "config.json").exists():
        return folder
    import gem_core as gem
    from gem_core.tiny import build_tiny, save_tiny, warm_start
    from gem_core.wrappers.compact import RequestOnce

    model, tokenizer = build_tiny(seed, ["game:GuessTheNumber-v0"])
    warm_start(model, tokenizer, RequestOnce(gem.make("game:GuessTheNumber-v0", max_turns=8)), seed=seed)
    return save_tiny(model, tokenizer, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model's name or folder; default: the tiny model, on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/verl_rebn"))
    args, overrides = parser.parse_known_args()

    settings = [f"data.gem.seed={args.seed}", f"trainer.default_local_dir={args.output_dir.resolve()}"]
    environment = dict(os.environ)
    if args.model is None:
        model = tiny_model(args.output_dir / f"tiny-seed{args.seed}", args.seed)
        path = model.resolve()
        settings += TINY.split() + CPU.split() + [f"actor_rollout_ref.model.path={path}", f"critic.model.path={path}"]
        modules = [CPU_ENVIRONMENT["VERL_USE_EXTERNAL_MODULES"], os.environ.get("VERL_USE_EXTERNAL_MODULES")]
        environment |= CPU_ENVIRONMENT | {"VERL_USE_EXTERNAL_MODULES": ",".join(filter(None, modules))}
        environment |= {"VERL_FILE_LOGGER_PATH": str((args.output_dir / "metrics.jsonl").resolve())}
    else:
        settings.append(f"actor_rollout_ref.model.path={args.model}")
    command = [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-path={HERE}", "--config-name=verl_gem"]
    sys.exit(subprocess.run([*command, *settings, *overrides], env=environment).returncode)


if __name__ == "__main__":
    main()

"""Trains an agent on a GEM environment with OpenRLHF's own trainer and REINFORCE with return batch normalization.

This one file is what OpenRLHF loads in its engines (``AgentExecutor``) and what starts the run. On a laptop, nothing
downloaded (OpenRLHF and vLLM for CPUs installed as in adapters/gem_openrlhf/README.md):

    python examples/train_openrlhf_rebn.py

On eight GPUs (OpenRLHF's own flags go after the model):

    python examples/train_openrlhf_rebn.py --model Qwen/Qwen3-1.7B-Base --actor.num_gpus_per_node 8 --vllm.num_engines 8
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gem_openrlhf import GemAgentExecutor

HERE = Path(__file__).resolve()
ENV_ID = "game:GuessTheNumber-v0"
MAX_TURNS = 8


class AgentExecutor(GemAgentExecutor):
    """One episode for each sample; override ``execute`` or the settings here for what no flag covers."""


#: For any model.
COMMON = f"""
--train.agent_func_path {HERE}
--data.input_key input --data.label_key label
--algo.advantage.estimator gem_rebn
--algo.advantage.is_correction_level token
--algo.kl.init_coef 0
--vllm.num_engines 1
--logger.logging_steps 1
"""

#: A pretrained model on GPUs.
GPU = """
--train.colocate_all --vllm.enable_sleep --ds.enable_sleep
--vllm.gpu_memory_utilization 0.6 --vllm.enable_prefix_caching
--actor.num_gpus_per_node 1
--actor.gradient_checkpointing_enable --ds.zero_stage 3 --ds.packing_samples
--rollout.batch_size 128 --rollout.n_samples_per_prompt 1 --rollout.micro_batch_size 4
--train.batch_size 128 --train.micro_batch_size 2
--rollout.max_new_tokens 1024 --data.max_len 8192
--algo.advantage.gamma 0.9 --actor.adam.lr 1e-6
"""

#: The tiny model on a CPU: short episodes, large steps, two passes over four mini-batches of each batch.
TINY = """
--vllm.sync_backend gloo --vllm.enforce_eager --vllm.gpu_memory_utilization 0.2
--actor.num_gpus_per_node 1 --ds.zero_stage 0 --ds.attn_implementation eager
--rollout.batch_size 128 --rollout.n_samples_per_prompt 1 --rollout.micro_batch_size 32
--train.batch_size 32 --train.micro_batch_size 32 --train.max_epochs 2
--rollout.max_new_tokens 5 --data.max_len 384
--algo.advantage.gamma 0.8
--actor.adam.lr 2e-3 --actor.adam.betas 0.9 0.99 --actor.max_norm 0.5 --actor.min_lr_ratio 1.0
"""
#: What OpenRLHF has no GPU-free form of (flash-attn's index functions, NCCL, CUDA calls) is replaced by CI's stand-ins.
CPU_ENVIRONMENT = {
    "OPENRLHF_CPU": "1",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(HERE.parents[1] / "ci" / "openrlhf_cpu"), os.environ.get("PYTHONPATH")])
    ),
}


def tiny_model(folder: Path, seed: int) -> Path:
    """Builds the tiny model with its short supervised warm start, once for each folder."""
    if (folder / "config.json").exists():
        return folder
    import gem_core as gem
    from gem_core.tiny import build_tiny, save_tiny, warm_start
    from gem_core.wrappers.compact import RequestOnce

    model, tokenizer = build_tiny(seed, [ENV_ID])
    warm_start(model, tokenizer, RequestOnce(gem.make(ENV_ID, max_turns=MAX_TURNS)), seed=seed)
    return save_tiny(model, tokenizer, folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", help="a model's name or folder; default: the tiny model, on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/openrlhf_rebn"))
    args, overrides = parser.parse_known_args()
    if args.model is None and os.environ.get("OPENRLHF_CPU") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **CPU_ENVIRONMENT})

    from gem_openrlhf import launch
    from gem_openrlhf.dataset import EnvChoice, rows, write

    out = args.output_dir.resolve()
    flags = COMMON.split() + (TINY if args.model is None else GPU).split()
    every = [*flags, *overrides]
    rollout_batch = int(every[len(every) - every[::-1].index("--rollout.batch_size")])  # the last one counts
    mix = [EnvChoice(ENV_ID, {"max_turns": MAX_TURNS} if args.model is None else {})]
    settings = {"wrappers": "request_once"} if args.model is None else {}
    write(out / "train.jsonl", rows(mix, args.iterations * rollout_batch, seed=args.seed, settings=settings))
    flags += ["--data.prompt_dataset", str(out / "train.jsonl"), "--train.seed", str(args.seed)]
    flags += ["--ckpt.output_dir", str(out / "model"), "--ckpt.path", str(out / "checkpoints")]
    flags += ["--logger.tensorboard_dir", str(out / "tensorboard")]
    model = args.model or str(tiny_model(out / f"tiny-seed{args.seed}", args.seed))
    run = launch.arguments([*flags, "--actor.model_name_or_path", model, *overrides])
    if args.model is None:
        import ray

        # Two GPUs that are not there: OpenRLHF asks Ray for one for the actor and one for the engine.
        environment = {"env_vars": launch.worker_environment()}
        ray.init(address="local", num_cpus=8, num_gpus=2, include_dashboard=False, runtime_env=environment)
    launch.train(run)


if __name__ == "__main__":
    main()

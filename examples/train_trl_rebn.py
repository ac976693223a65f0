"""Train a language model on a multi-turn environment with TRL and ReBN.

    python examples/train_trl_rebn.py                      # a tiny model learns GuessTheNumber on a CPU
    python examples/train_trl_rebn.py --advantage grpo     # the same with another estimator
    python examples/train_trl_rebn.py --model Qwen/Qwen3-1.7B-Base --env_id game:Mastermind-v0 --use_vllm

The run folder gets metrics.jsonl, episodes.jsonl, TensorBoard events if installed, checkpoints and report.html.
"""

from __future__ import annotations

import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed

import gem_core as gem
from gem_core.run_folder import RunFolder
from gem_core.tiny import build_tiny, warm_start
from gem_core.wrappers.compact import RequestOnce
from gem_trl import GemConfig, GemGRPOTrainer, ProgressBar


def parse_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="tiny", help="'tiny' (built on the spot), or a name or path")
    p.add_argument("--env_id", default="game:GuessTheNumber-v0")
    p.add_argument("--env_kwargs", type=json.loads, default={"max_turns": 8}, help="JSON")
    p.add_argument("--advantage", default="rebn", help="rebn, reinforce, grpo, dr_grpo or rloo")
    p.add_argument("--gamma", type=float, default=0.8)
    p.add_argument("--iterations", type=int, default=200, help="batches of episodes")
    p.add_argument("--episodes", type=int, default=128, help="episodes in a batch")
    p.add_argument("--group", type=int, default=8, help="episodes that share a seed, for the group estimators")
    p.add_argument("--learning_rate", type=float, default=1e-3)
    p.add_argument("--max_tokens_per_turn", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--no_warm_start", action="store_true", help="start from random weights")
    p.add_argument("--use_vllm", action="store_true")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--output_dir", default="runs/trl_rebn")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in output_dir")
    return p.parse_args()


def main() -> None:
    cli = parse_args()
    if cli.threads:
        torch.set_num_threads(cli.threads)
    set_seed(cli.seed)

    def make_env() -> gem.Env:
        env = gem.make(cli.env_id, **cli.env_kwargs)
        return RequestOnce(env) if cli.model == "tiny" else env

    if cli.model == "tiny":
        model, tokenizer = build_tiny(cli.seed, [cli.env_id])
        if not cli.no_warm_start:
            warm_start(model, tokenizer, make_env(), seed=cli.seed)
    else:
        model, tokenizer = AutoModelForCausalLM.from_pretrained(cli.model), AutoTokenizer.from_pretrained(cli.model)
    updates = 8 * cli.iterations  # 2 passes over 4 minibatches of each batch
    config = GemConfig(
        output_dir=cli.output_dir,
        env_id=cli.env_id,
        env_kwargs=cli.env_kwargs,
        advantage=cli.advantage,
        gamma=cli.gamma,
        max_tokens_per_turn=cli.max_tokens_per_turn,
        max_steps=updates,
        per_device_train_batch_size=cli.episodes // 4,
        steps_per_generation=4,
        num_iterations=2,
        num_generations=cli.group,
        loss_type="bnpo",
        epsilon=0.2,
        kl_stop=0.03,
        reuse_logprobs=not cli.use_vllm,
        max_grad_norm=0.5,
        learning_rate=cli.learning_rate,
        adam_beta2=0.99,
        adam_epsilon=1e-6,
        lr_scheduler_type="warmup_stable_decay",
        warmup_steps=80,
        lr_scheduler_kwargs={"num_decay_steps": updates - 80, "decay_type": "linear", "min_lr_ratio": 0.1},
        seed=cli.seed,
        use_vllm=cli.use_vllm,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=torch.cuda.is_available(),
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    run = RunFolder(cli.output_dir, vars(cli), resume=cli.resume)
    trainer = GemGRPOTrainer(model, config, tokenizer, make_env=make_env, run_folder=run, callbacks=[ProgressBar()])
    trainer.remove_callback(PrinterCallback)
    before = trainer.evaluate()
    trainer.train(resume_from_checkpoint=cli.resume)
    after = trainer.evaluate()
    n = config.eval_episodes
    print(
        f"greedy success on {n} held-out seeds: {before['eval_success']:.3f} before, {after['eval_success']:.3f} after"
    )


if __name__ == "__main__":
    main()

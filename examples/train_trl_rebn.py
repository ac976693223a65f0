"""Train a language model on a multi-turn environment with TRL and ReBN.

    python examples/train_trl_rebn.py                      # a tiny model learns GuessTheNumber on a CPU
    python examples/train_trl_rebn.py --advantage grpo     # the same with another estimator
    python examples/train_trl_rebn.py --model Qwen/Qwen3-1.7B-Base --env_id game:Mastermind-v0-easy \
        --max_tokens_per_turn 1024 --learning_rate 1e-6 --use_vllm

The run folder gets metrics.jsonl, sampled episodes, TensorBoard events if it is installed, checkpoints on request and
report.html.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import torch
from gem_trl import GemConfig, GemGRPOTrainer, GemPPOTrainer, ProgressBar
from transformers import PrinterCallback

import gem_core as gem
from gem_core.report import write_report
from gem_core.run_folder import RunFolder
from gem_core.tiny import build_tiny, warm_start
from gem_core.wrappers.compact import RequestOnce


def parse_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="tiny", help="'tiny' (built on the spot), or a name or path")
    p.add_argument("--env_id", default="game:GuessTheNumber-v0", help="by default 1..20 in 8 turns")
    p.add_argument("--env_kwargs", type=json.loads, help='JSON, such as {"max_turns": 8}')
    p.add_argument("--advantage", default="rebn", help="rebn, reinforce, grpo, dr_grpo, rloo or gae (PPO)")
    p.add_argument("--gamma", type=float, default=0.8, help="discount a turn")
    p.add_argument("--iterations", type=int, default=200, help="batches of episodes")
    p.add_argument("--episodes", type=int, default=128, help="episodes in a batch")
    p.add_argument("--group", type=int, default=8, help="episodes that share a seed, where the estimator compares them")
    p.add_argument("--learning_rate", type=float, default=1.5e-3)
    p.add_argument("--max_tokens_per_turn", type=int, default=5)
    p.add_argument("--eval_episodes", type=int, default=256, help="held-out seeds")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--no_warm_start", action="store_true", help="start the tiny model from random weights")
    p.add_argument("--use_vllm", action="store_true")
    p.add_argument("--save_every", type=int, default=0, help="iterations between checkpoints")
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint in output_dir")
    p.add_argument("--output_dir", default="runs/trl_rebn")
    args = p.parse_args()
    if args.env_kwargs is None:
        args.env_kwargs = {"max_turns": 8} if args.env_id.startswith("game:GuessTheNumber") else {}
    return args


def main() -> None:
    cli = parse_args()
    tiny, gpu = cli.model == "tiny", torch.cuda.is_available()
    make_env = partial(gem.make, cli.env_id, **cli.env_kwargs)
    if tiny:
        torch.set_num_threads(1)  # its matrices are too small to share out; more threads only wait for each other
        if "GuessTheNumber" in cli.env_id:  # a board would be needed every turn; "Guess 3 of 8" is not
            make_env = partial(lambda make: RequestOnce(make()), make_env)
        model, tokenizer = build_tiny(cli.seed, [cli.env_id])
        if not cli.no_warm_start and not cli.resume:
            print("warm start on scripted episodes ...", flush=True)
            warm_start(model, tokenizer, make_env(), seed=cli.seed)
    else:
        model, tokenizer = cli.model, None  # the trainer loads both

    # Each batch of episodes is trained on in 2 passes over 4 minibatches.
    updates = 8 * cli.iterations
    warmup = min(80, updates // 4)
    config = GemConfig(
        output_dir=cli.output_dir,
        env_id=cli.env_id,
        advantage=cli.advantage,
        gamma=cli.gamma,
        max_tokens_per_turn=cli.max_tokens_per_turn,
        num_generations=cli.group,
        per_device_train_batch_size=cli.episodes // 4,
        steps_per_generation=4,
        num_iterations=2,
        epsilon=0.2,  # clip the ratio, and stop a batch's passes where the policy has moved far
        kl_stop=0.03,
        reuse_logprobs=tiny,
        loss_type="bnpo",
        max_grad_norm=0.5,
        learning_rate=cli.learning_rate,
        critic_learning_rate=1e-3 if tiny else 1e-5,
        adam_beta2=0.99,
        adam_epsilon=1e-6,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": updates - warmup, "decay_type": "linear", "min_lr_ratio": 0.1},
        warmup_steps=warmup,
        max_steps=updates,
        seed=cli.seed,
        eval_episodes=cli.eval_episodes,
        use_vllm=cli.use_vllm,
        use_cpu=not gpu,
        bf16=gpu,
        gradient_checkpointing=gpu,
        logging_steps=8,
        save_strategy="steps" if cli.save_every else "no",
        save_steps=8 * max(1, cli.save_every),
        report_to=[],  # the run folder has it all
        disable_tqdm=True,
    )
    run = RunFolder(cli.output_dir, vars(cli), resume=cli.resume) if config.process_index == 0 else None
    trainer_class = GemPPOTrainer if cli.advantage == "gae" else GemGRPOTrainer
    trainer = trainer_class(model, config, tokenizer, make_env=make_env, run_folder=run, callbacks=[ProgressBar()])
    trainer.remove_callback(PrinterCallback)

    before = None if cli.resume else trainer.evaluate()
    trainer.train(resume_from_checkpoint=cli.resume)
    after = trainer.evaluate()
    trainer.save_model(f"{cli.output_dir}/model")
    if run is not None:
        run.close()
        held_out = f"greedy success on {cli.eval_episodes} held-out seeds:"
        if before is not None:
            print(f"{held_out} {before['eval_success']:.3f} before training ({before['eval_turns']:.2f} turns)")
        print(f"{held_out} {after['eval_success']:.3f} after training ({after['eval_turns']:.2f} turns)")
        print(f"report: {write_report(cli.output_dir)}")


if __name__ == "__main__":
    main()

"""Train a language model on GEM environments with Oat and ReBN: the paper's baseline.

    python examples/train_oat_rebn.py game --env_id game:GuessTheNumber-v0      # 8 GPUs, Qwen3-1.7B-Base
    python examples/train_oat_rebn.py math_python --gpus 4 --rollout_batch_size_per_device 32
    python examples/train_oat_rebn.py qa_search --eval_envs 'eval:HotpotQA|eval:Bamboogle' --eval_steps 50
    python examples/train_oat_rebn.py game --advantage grpo --group_size 8      # or rloo, dr_grpo, ppo, ...

The first word is a preset; any of Oat's arguments and of GemArgs' may follow and wins. Needs Python 3.10.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import tyro
from gem_oat import GemActor, GemArgs, GemLearner, prepare_args
from oat.interface import get_program, lp

STEP_BY_STEP = "Reason step by step, and put your final answer within \\boxed{}."
GAME = f"You are playing a language game; win it by valid moves.\nObservation: {{observation}}\n{STEP_BY_STEP}"
QUESTION = f"Question: {{observation}}\n{STEP_BY_STEP}"
CODE = (
    "You are an expert Python programmer. Write a correct program for the problem below; it must pass all tests.\n"
    "Problem: {observation}\nReason step by step, and write the program in one block that begins with ```python."
)

# What all of the paper's runs share: 128 turns a batch and 2 passes over it as one gradient step each, no KL penalty.
PAPER = GemArgs(
    advantage="rebn",
    gpus=8,
    collocate=True,
    vllm_sleep=True,
    vllm_gpu_ratio=0.45,
    enable_prefix_caching=True,
    gradient_checkpointing=True,
    zero_stage=2,
    rollout_batch_size_per_device=16,
    train_batch_size=128,
    train_batch_size_per_device=1,
    num_ppo_epochs=2,
    learning_rate=1e-6,
    lr_scheduler="constant",
    lr_warmup_ratio=0.0,
    beta=0.0,
    temperature=1.0,
    top_p=1.0,
    max_model_len=12800,
    generate_max_length=4096,
    eval_generate_max_length=4096,
    eval_temperature=0.6,
    eval_top_p=0.95,
    eval_steps=-1,
    max_train=65000,
    rnd_seed=True,
)
SMALL: dict[str, Any] = {"pretrain": "Qwen/Qwen3-1.7B-Base", "num_envs": 2}
LARGE: dict[str, Any] = {"pretrain": "Qwen/Qwen3-4B-Base", "num_envs": 4, "gamma": 1.0}
SHORT: dict[str, Any] = {"max_model_len": 5120, "generate_max_length": 500, "eval_generate_max_length": 500}
PRESETS: dict[str, dict[str, Any]] = {
    # Every turn's prompt is the observations so far, without the model's earlier answers; haste is rewarded.
    "game": {
        **SMALL,
        "env_id": "game:GuessTheNumber-v0",
        "wrappers": "concat",
        "context": "rebuild",
        "instruction": GAME,
        "gamma": 0.9,
    },
    "reasoning": {**SMALL, "env_id": "rg:arc_1d", "instruction": QUESTION, "gamma": 1.0},
    "math": {**LARGE, "env_id": "math:Math12K"},
    "math_python": {**LARGE, "env_id": "math:Math12K", "wrappers": "python_tool_no_int_reward"},
    "code": {**LARGE, "env_id": "code:PrimeIntellect15k", "instruction": CODE},
    "qa": {**LARGE, **SHORT, "env_id": "qa:HotpotQA"},
    # SEARCH_URL names the retrieval server.
    "qa_search": {**LARGE, **SHORT, "env_id": "qa:HotpotQA", "wrappers": "search_tool_no_int_reward"},
}


def parse_args(argv: list[str]) -> GemArgs:
    if not argv or argv[0] not in PRESETS:
        sys.exit(f"{__doc__}\nPresets: {', '.join(PRESETS)}")
    return prepare_args(tyro.cli(GemArgs, args=argv[1:], default=replace(PAPER, **PRESETS[argv[0]])))


def main() -> None:
    args = parse_args(sys.argv[1:])
    program, local_resources = get_program(args, learner_cls=GemLearner, actor_cls=GemActor)
    lp.launch(program, launch_type=args.launch_type, local_resources=local_resources, terminal="current_terminal")


if __name__ == "__main__":
    main()

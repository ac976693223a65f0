"""``GemArgs``: Oat's ``PPOArgs`` and what an environment adds to them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Optional

from oat.algorithms.ppo import PPOArgs
from oat.args import default_args_validation

from gem_core.advantages import GROUP_ESTIMATORS


@dataclass
class GemArgs(PPOArgs):  # type: ignore[misc]
    """Arguments of :class:`~gem_oat.GemActor` and :class:`~gem_oat.GemLearner`.

    Oat's keep their meaning, with a turn where Oat has a prompt: ``rollout_batch_size_per_device`` turns are collected
    and trained on at a time, ``generate_max_length`` bounds one turn, ``max_model_len`` an episode's context,
    ``max_train`` the turns of the whole run. Lists are written with ``|`` between the items.
    """

    # Id of gem_core.make().
    env_id: str = "game:GuessTheNumber-v0"
    # Arguments of the environment, as JSON.
    env_kwargs: str = "{}"
    # Names of gem_core.wrappers.wrapper_factory, separated by commas.
    wrappers: str = ""
    # What the model is shown, with {observation} where the observation goes; empty: the observation alone.
    instruction: str = ""
    # "append": one growing chat. "rebuild": each observation is the whole prompt of its turn, as concat wrappers write.
    context: Literal["append", "rebuild"] = "append"
    # "chat": observations are user messages of the chat template. "plain": they are the text itself.
    prompt: Literal["chat", "plain"] = "chat"
    # Passed to the chat template, as JSON, such as {"enable_thinking": false}.
    chat_template_kwargs: str = "{}"
    # Put before the first observation.
    system_prompt: str = ""
    # Turns after which an episode is truncated, besides the environment's own limit.
    max_turns: Optional[int] = None  # noqa: UP045 - tyro reads it under Python 3.10
    # Episodes in flight in one actor.
    num_envs: int = 16
    # Where environments run: inline, thread, process or ray; by default what the environment declares.
    executor: Optional[Literal["inline", "thread", "process", "ray"]] = None  # noqa: UP045
    # Seconds for one step of an environment.
    step_timeout_s: Optional[float] = None  # noqa: UP045

    # rebn, reinforce, ppo (a critic over turns), or a comparison within groups of episodes that start alike.
    advantage: Literal["rebn", "reinforce", "grpo", "dr_grpo", "rloo", "grpo_turn", "rloo_turn", "ppo"] = "rebn"
    # Episodes that share a seed, for the estimators that compare them.
    group_size: int = 8
    # The constant that a turn's sum over tokens is divided by; by default generate_max_length.
    length_norm_constant: Optional[int] = None  # noqa: UP045
    # Train on episodes that ran out of max_model_len too; the paper's baselines drop them.
    keep_overlong: bool = False

    # Environments of the online evaluation: ids.
    eval_envs: str = ""
    # For each: its arguments (JSON) and its wrappers; one item serves all.
    eval_env_kwargs: str = "{}"
    eval_wrappers: str = ""
    # Held-out starts of each environment; -1: 256 seeds, or all rows of a dataset. Each is played eval_n times.
    eval_episodes: int = -1

    # Actor steps between dumps of the step's episodes, as JSON lines; 0: none.
    dump_episodes_every: int = 0


def prepare_args(args: GemArgs, *, gpus_needed: bool = True) -> GemArgs:
    """Checks the arguments, sets those of Oat's that follow from the others, and runs Oat's own checks.

    Args:
        args: Changed in place.
        gpus_needed: False leaves Oat's checks out (they count GPUs).

    Raises:
        ValueError: a value that makes no sense, named.
    """
    from gem_oat.environments import eval_tasks, json_object

    json_object("env_kwargs", args.env_kwargs)
    json_object("chat_template_kwargs", args.chat_template_kwargs)
    if args.instruction and "{observation}" not in args.instruction:
        raise ValueError("instruction must say where the observation goes: put {observation} into it")
    for name in ("num_envs", "group_size", "rollout_batch_size_per_device", "train_batch_size_per_device"):
        if getattr(args, name) < 1:
            raise ValueError(f"{name} must be positive, got {getattr(args, name)!r}")
    if not 0.0 <= args.gamma <= 1.0:
        raise ValueError(f"gamma must lie in 0 to 1, got {args.gamma!r}")
    if args.advantage in GROUP_ESTIMATORS and args.group_size < 2:
        raise ValueError(f"advantage={args.advantage!r} compares episodes: group_size must be at least 2")
    if args.rollout_batch_size_per_device % args.train_batch_size_per_device:
        raise ValueError(
            f"rollout_batch_size_per_device={args.rollout_batch_size_per_device} must be a multiple of "
            f"train_batch_size_per_device={args.train_batch_size_per_device}"
        )
    if args.reinforce_update and (args.beta > 0 or args.kl_penalty_coef > 0):
        raise ValueError("reinforce_update has no reference policy: set beta=0 and kl_penalty_coef=0")
    if args.advantage == "ppo" and args.kl_penalty_coef > 0:
        raise ValueError("kl_penalty_coef pays each token, advantage='ppo' counts rewards by the turn: use beta")
    if args.asynchronous:
        raise ValueError("asynchronous is not supported: episodes of one batch belong to one policy")
    # One learner a GPU: all of them where they share the actors' GPUs, else half, as get_program lays them out.
    learners = (args.gpus if args.collocate else max(1, args.gpus // 2)) * args.num_groups
    per_update = args.train_batch_size_per_device * learners
    if args.train_batch_size % per_update:
        raise ValueError(
            f"train_batch_size={args.train_batch_size} must be a multiple of train_batch_size_per_device * learners = "
            f"{per_update}"
        )
    eval_tasks(args, 0, 1)  # names what is wrong with the evaluation's environments

    args.algo = "PPO"
    args.critic_type = "ppo" if args.advantage == "ppo" else "drgrpo"
    args.oracle = args.prompt_data = ""  # the environment gives both
    args.num_samples = 1  # of one prompt; groups are made of whole episodes
    args.rollout_batch_size = args.rollout_batch_size_per_device * learners
    args.pi_buffer_maxlen_per_device = args.rollout_batch_size_per_device  # train on the newest batch only
    if not args.eval_envs:
        args.eval_steps = -1
    if args.rnd_seed:  # Oat draws it in the learner alone; the actors' games must follow it
        args.seed, args.rnd_seed = time.time_ns() % 2**31, False
    if gpus_needed:
        default_args_validation(args)
    return args


def settings(text: str, count: int, name: str) -> list[str]:
    """Splits ``a|b``; one item serves all.

    Raises:
        ValueError: neither one item nor ``count`` of them.
    """
    items = text.split("|")
    if len(items) == 1:
        return items * count
    if len(items) != count:
        raise ValueError(f"{name} has {len(items)} items for {count} environments: {text!r}")
    return items

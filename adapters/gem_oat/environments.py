"""Which episodes are played, and how their prompts are written."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gem_core.advantages import GROUP_ESTIMATORS
from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.core import Env, EnvWrapper, Info, StepTuple, reset_env
from gem_core.registration import WrapperFn
from gem_core.rollout import Task
from gem_core.session import Limits, with_suffix
from gem_core.wrappers.wrapper_factory import get_wrapper_fns

if TYPE_CHECKING:
    from gem_oat.args import GemArgs

#: The online evaluation uses the seeds from here on; training those below.
HELD_OUT_SEED = 2**31


class Instructed(EnvWrapper):
    """Writes observations into a text that says what to do with them.

    Args:
        env: The environment.
        text: With ``{observation}`` where the observation goes.
        every_turn: False: the first observation only, which a growing chat keeps in sight.
    """

    def __init__(self, env: Env, text: str, every_turn: bool) -> None:
        super().__init__(env)
        self._text, self._every_turn = text, every_turn

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        return self._write(*reset_env(self.env, seed, options))

    def step(self, action: str) -> StepTuple:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._every_turn:
            observation, info = self._write(observation, info)
        return observation, reward, terminated, truncated, info

    def _write(self, observation: str, info: Info) -> tuple[str, Info]:
        shown = self._text.replace("{observation}", with_suffix(observation, info))
        return shown, {k: v for k, v in info.items() if k != "suffix"}


def wrapper_fns(names: str, args: GemArgs, tokenizer: Any) -> tuple[WrapperFn, ...]:
    """The wrappers by name, and the instruction around them."""
    fns: list[WrapperFn] = get_wrapper_fns(names, tokenizer)
    if args.instruction:
        fns.append(partial(Instructed, text=args.instruction, every_turn=args.context == "rebuild"))
    return tuple(fns)


def make_renderer(args: GemArgs, tokenizer: Any) -> Renderer:
    """Writes token ids as ``args.prompt`` says."""
    if args.prompt == "plain":
        # Oat checks that a tokenizer's BOS token is in the prompt.
        return PlainRenderer(tokenizer, add_special_tokens=tokenizer.bos_token is not None)
    return ChatRenderer(tokenizer, template_kwargs=json_object("chat_template_kwargs", args.chat_template_kwargs))


def limits(args: GemArgs, *, evaluation: bool = False) -> Limits:
    """Of each episode."""
    return Limits(
        max_turns=args.max_turns,
        max_context_tokens=args.max_model_len,
        max_tokens_per_turn=args.eval_generate_max_length if evaluation else args.generate_max_length,
    )


def training_tasks(args: GemArgs, actor_id: int, step: int, wrappers: Sequence[WrapperFn]) -> Iterator[Task]:
    """Endless episodes of one actor step; those of a group follow one another and share their seed.

    A seed depends on the run's seed, the actor and the step only, so a run can be repeated.
    """
    size = args.group_size if args.advantage in GROUP_ESTIMATORS else 1
    kwargs = json_object("env_kwargs", args.env_kwargs)
    where = f"{args.group_rank}-{actor_id}:{step}"
    for number in itertools.count():
        seed = random.Random(f"{args.seed}:{where}:{number}").randrange(HELD_OUT_SEED)
        group = f"{where}:{number}"
        for member in range(size):
            yield Task(args.env_id, seed, f"{group}:{member}", group, kwargs=kwargs, wrappers=tuple(wrappers))


def eval_tasks(args: GemArgs, shard: int, shards: int, tokenizer: Any = None) -> dict[str, list[Task]]:
    """Every environment's held-out episodes, each ``shards``-th of them from ``shard`` on.

    Raises:
        ValueError: an environment named twice, or lists whose lengths do not fit.
    """
    ids = [i for i in args.eval_envs.split("|") if i]
    if len(set(ids)) != len(ids):
        raise ValueError(f"eval_envs must differ, got {args.eval_envs!r}")
    if not ids:
        return {}
    from gem_core.evaluation.plan import plan_tasks
    from gem_oat.args import settings

    all_kwargs = settings(args.eval_env_kwargs, len(ids), "eval_env_kwargs")
    all_wrappers = settings(args.eval_wrappers, len(ids), "eval_wrappers")
    out: dict[str, list[Task]] = {}
    for env_id, text, names in zip(ids, all_kwargs, all_wrappers, strict=True):
        kwargs = json_object("eval_env_kwargs", text)
        if tokenizer is None:  # only checking: building the environments' data can wait
            get_wrapper_fns(names)
            continue
        episodes = None if args.eval_episodes < 0 else args.eval_episodes
        tasks = plan_tasks(
            env_id, episodes, HELD_OUT_SEED, args.eval_n, kwargs, wrapper_fns(names, args, tokenizer)
        ).tasks
        out[env_id] = tasks[shard::shards]
    return out


def json_object(name: str, text: str) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        ValueError: it is none; the message names the argument.
    """
    try:
        value = json.loads(text or "{}")
    except json.JSONDecodeError as e:
        raise ValueError(f"{name} must be a JSON object such as '{{\"max_turns\": 8}}', got {text!r}: {e}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {text!r}")
    return value

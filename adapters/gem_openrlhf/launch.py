"""``python -m gem_openrlhf.launch``: OpenRLHF's ``openrlhf.cli.train_ppo_ray``, with its flags, and GEM's trainer.

Two things are added:

* ``--algo.advantage.estimator`` also takes ``gem_rebn``, ``gem_reinforce``, ``gem_grpo_turn``, ``gem_rloo_turn``,
  ``gem_gae``, ``gem_grpo``, ``gem_dr_grpo`` and ``gem_rloo``.
* ``--gem.NAME VALUE`` sets a field of :class:`gem_openrlhf.settings.GemSettings` for all rows whose label does not
  (``--gem.env_id game:Wordle-v0 --gem.max_turns 6``); it travels to Ray's workers as the variable ``GEM_NAME``.

``--train.agent_func_path`` is ``gem_openrlhf/agent.py`` if it is not given. Nothing of OpenRLHF is patched: its
``train`` names the trainer class inside its body, so :func:`train` here is the same sequence of OpenRLHF's public
pieces with :mod:`gem_openrlhf.trainer`'s class in its place.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from gem_openrlhf._compat import wants_logprobs
from gem_openrlhf.settings import PREFIX, GemSettings, variable

AGENT = Path(__file__).with_name("agent.py")
ESTIMATOR = "--algo.advantage.estimator"


def main(argv: Sequence[str] | None = None) -> None:
    train(arguments(sys.argv[1:] if argv is None else argv))


def arguments(argv: Sequence[str]) -> Any:
    """OpenRLHF's nested arguments, checked by OpenRLHF's own code.

    Raises:
        ValueError: an unknown ``--gem.`` flag, or a setting that an episode would refuse.
        SystemExit: what argparse refuses.
    """
    from gem_openrlhf.advantages import own_name, stand_in

    rest = _take_settings(argv)
    _check(GemSettings.from_environ())
    if not any(a.split("=", 1)[0] == "--train.agent_func_path" for a in rest):
        rest += ["--train.agent_func_path", str(AGENT)]
    chosen = None
    for i, a in enumerate(rest):
        flag, _, value = a.partition("=")
        if flag == ESTIMATOR:
            at = i if value else i + 1
            value = value or (rest[at] if at < len(rest) else "")
            chosen = value if (name := own_name(value)) else None
            if name:
                rest[at] = f"{flag}={stand_in(name)}" if at == i else stand_in(name)
    args = _parse(rest)
    if chosen:
        if args.algo.advantage.no_std_norm:
            raise ValueError(f"--algo.advantage.no_std_norm is of OpenRLHF's estimators, not of {chosen}")
        args.algo.advantage.estimator = chosen
    return args


def _take_settings(argv: Sequence[str]) -> list[str]:
    """Moves ``--gem.NAME VALUE`` into the environment; returns the other arguments."""
    known = [f.name for f in fields(GemSettings)]
    rest: list[str] = []
    left = list(argv)
    while left:
        flag = left.pop(0)
        if not flag.startswith("--gem."):
            rest.append(flag)
            continue
        name, equals, value = flag[len("--gem.") :].partition("=")
        if name not in known:
            raise ValueError(f"no setting is called --gem.{name}; there are {', '.join(f'--gem.{n}' for n in known)}")
        if not equals:
            if not left:
                raise ValueError(f"--gem.{name} needs a value")
            value = left.pop(0)
        os.environ[variable(name)] = value
    return rest


def _check(settings: GemSettings) -> None:
    """Refuses a misspelt environment, argument or wrapper before any worker starts."""
    import gem_core as gem
    from gem_core.chat import ChatTokenizer
    from gem_core.wrappers.wrapper_factory import get_wrapper_fns

    if settings.env_id is not None:
        gem.make(settings.env_id, **settings.env_kwargs).close()
    if settings.wrappers:
        get_wrapper_fns(settings.wrappers, tokenizer=cast(ChatTokenizer, object()))  # only the names are checked


def _parse(argv: list[str]) -> Any:
    """Runs the ``__main__`` block of OpenRLHF's command line up to its last statement, the call ``train(args)``.

    OpenRLHF builds its parser and checks the arguments in that block and offers no function for it.
    """
    cli = importlib.import_module("openrlhf.cli.train_ppo_ray")
    source = inspect.getsource(cli)
    blocks = [n for n in ast.parse(source).body if isinstance(n, ast.If) and "__main__" in ast.unparse(n.test)]
    if len(blocks) != 1 or ast.unparse(blocks[0].body[-1]) != "train(args)":
        raise ImportError(
            f"{cli.__file__} does not end in train(args); this OpenRLHF is not supported", name="openrlhf"
        )
    code = compile(ast.Module(blocks[0].body[:-1], type_ignores=[]), str(cli.__file__), "exec")
    namespace = dict(vars(cli))
    sys.argv = [sys.argv[0], *argv]
    exec(code, namespace)  # the installed package's own code
    return namespace["args"]


def train(args: Any) -> None:
    """``openrlhf.cli.train_ppo_ray.train`` with the trainer of :mod:`gem_openrlhf.trainer`."""
    import ray
    from openrlhf.utils import get_strategy

    from gem_openrlhf.trainer import GemPPOTrainer, GemPPOTrainerAsync

    if not ray.is_initialized():
        ray.init(runtime_env={"env_vars": worker_environment()})
    strategy = get_strategy(args)
    strategy.print(args)
    models = build_models(args)
    trainer_class: Any = ray.remote(GemPPOTrainerAsync if args.train.async_enable else GemPPOTrainer)
    trainer = trainer_class.remote(
        args.actor.model_name_or_path,
        strategy,
        models["actor"],
        models["critic"],
        models["reward"],
        models["ref"],
        models["engines"],
        do_sample=True,
        max_len=args.data.max_len,
        max_new_tokens=args.rollout.max_new_tokens,
        temperature=args.rollout.temperature,
        top_p=args.rollout.top_p,
    )
    max_steps = ray.get(trainer.get_max_steps.remote())
    name = args.actor.model_name_or_path
    refs = list(models["actor"].async_init_model_from_pretrained(strategy, name, max_steps, models["engines"]))
    if models["ref"] is not None:
        refs += models["ref"].async_init_model_from_pretrained(strategy, name)
    if models["reward"] is not None and args.reward.model_name_or_path:
        refs += models["reward"].async_init_model_from_pretrained(strategy, args.reward.model_name_or_path)
    ray.get(refs)
    if models["critic"] is not None:  # after the actor: its scheduler needs the number of steps
        critic = args.critic.model_name_or_path
        ray.get(models["critic"].async_init_model_from_pretrained(strategy, critic, max_steps))
    ray.get(trainer.fit.remote())
    ray.get(models["actor"].async_save_model())
    if models["critic"] is not None and args.critic.save_value_network:
        ray.get(models["critic"].async_save_model())


def worker_environment() -> dict[str, str]:
    """Variables for Ray's workers: OpenRLHF's defaults (as far as the user set none) and the ``GEM_`` ones."""
    defaults = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
    ours = [v for f in fields(GemSettings) if (v := variable(f.name)) in os.environ]
    assert all(v.startswith(PREFIX) for v in ours)
    return {**{k: os.environ.get(k, v) for k, v in defaults.items()}, **{v: os.environ[v] for v in ours}}


def build_models(args: Any) -> dict[str, Any]:
    """The engines and the groups of Ray actors, on shared or separate GPUs as the ``colocate`` flags say."""
    import ray
    from openrlhf.trainer.ray import create_vllm_engines
    from openrlhf.trainer.ray.launcher import RayActorGroup, ReferenceModelActor, RewardModelActor
    from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
    from openrlhf.trainer.ray.ppo_critic import CriticModelActor
    from ray.util.placement_group import placement_group

    duplicates = args.ds.ring_attn_size * args.ds.tensor_parallel_size

    def gpus(section: Any) -> tuple[int, int]:
        return section.num_nodes, section.num_gpus_per_node

    def shared(section: Any, other: Any, what: str) -> Any:
        if gpus(section) != gpus(other):
            raise ValueError(f"colocated {what} need the same num_nodes and num_gpus_per_node")
        group = placement_group([{"GPU": 1, "CPU": 1}] * (gpus(section)[0] * gpus(section)[1]), strategy="PACK")
        ray.get(group.ready())
        return group

    def group(section: Any, model: Any, place: Any) -> Any:
        share = 0.2 if place else 1
        return RayActorGroup(*gpus(section), model, pg=place, num_gpus_per_actor=share, duplicate_actors=duplicates)

    together = args.train.colocate_all
    hybrid = together and not args.train.async_enable
    place = None
    if together or args.train.colocate_actor_ref:
        place = shared(args.actor, args.ref if args.algo.kl.init_coef > 0 else args.actor, "actor and reference")
    engines = None
    if args.vllm.num_engines:
        ranks = args.vllm.num_engines * args.vllm.tensor_parallel_size
        if hybrid and gpus(args.actor)[0] * gpus(args.actor)[1] != ranks:
            raise ValueError(
                "--train.colocate_all needs as many actor GPUs as engines times their tensor parallel size"
            )
        engines = create_vllm_engines(
            args.vllm.num_engines,
            args.vllm.tensor_parallel_size,
            args.actor.model_name_or_path,
            args.train.seed,
            args.train.full_determinism_enable,
            args.vllm.enable_prefix_caching,
            args.vllm.enforce_eager,
            args.data.max_len,
            place if hybrid else None,
            args.vllm.gpu_memory_utilization,
            args.vllm.enable_sleep,
            "processed_logprobs" if wants_logprobs(args) else None,
            agent_func_path=args.train.agent_func_path,
            remote_rm_url=args.reward.remote_url,
            max_images_per_prompt=args.data.max_images_per_prompt,
        )
    actor = group(args.actor, PolicyModelActor, place)
    reference = group(args.ref, ReferenceModelActor, place) if args.algo.kl.init_coef > 0 else None
    place = place if together else None
    if args.critic.model_name_or_path and args.train.colocate_critic_reward:
        place = shared(args.critic, args.reward, "critic and reward model")
    critic = group(args.critic, CriticModelActor, place) if args.critic.model_name_or_path else None
    reward = None if args.reward.remote_url else group(args.reward, RewardModelActor, place)
    return {"engines": engines, "actor": actor, "ref": reference, "critic": critic, "reward": reward}


if __name__ == "__main__":
    main()

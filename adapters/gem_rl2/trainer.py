"""RL2's PPO trainer with GEM's advantages: ``torchrun --nproc_per_node=8 -m gem_rl2.trainer [RL2's overrides]``.

Takes RL2's configuration, command line and launch as they are, and a section of its own, ``gem`` (add keys with
``+gem.KEY=VALUE``): the fields of :class:`gem_rl2.settings.GemSettings`, and ``estimator``.

RL2 has no registry of estimators. Its trainer calls, in this order, ``rollout(...)``, ``compute_advantages(...)`` and
the actor's update; :func:`extend` makes the trainer's own rollout and actor instances of subclasses that remember the
rollout's trajectories and write the turns' advantages over RL2's just before the update. Its modules stay untouched.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from typing import Any

from gem_core.advantages import ESTIMATORS
from gem_core.episode import Episode, StopReason
from gem_rl2 import ENV_PATH, GemSettings, configure, contract
from gem_rl2.advantages import turn_advantages
from gem_rl2.rows import masked, metrics
from gem_rl2.settings import current

#: ``gem.estimator`` for RL2's own (``adv.estimator``).
RL2_ESTIMATOR = "rl2"


def extend(trainer: Any, estimator: str = "rebn") -> None:
    """Gives a ``PPOTrainer`` the turn-level estimator ``estimator`` (``"rl2"``: leaves RL2's own).

    In rl-square 0.0.2 the rollout also masks failed episodes, closes those that ran out of turns and logs their return
    and stop reason, which its environments cannot.

    Raises:
        ValueError: unknown estimator, or one besides ``adv.estimator=gae``, whose critic it would ignore.
    """
    if estimator != RL2_ESTIMATOR and estimator not in ESTIMATORS:
        raise ValueError(f"gem.estimator must be one of {', '.join([*ESTIMATORS, RL2_ESTIMATOR])}, got {estimator!r}")
    if estimator != RL2_ESTIMATOR and trainer.config.adv.estimator != "reinforce":
        raise ValueError(
            f"gem.estimator={estimator} takes the place of adv.estimator=reinforce; for adv.estimator="
            f"{trainer.config.adv.estimator} set gem.estimator=rl2"
        )
    batch: dict[str, Any] = {}
    repository = contract() == "repository"
    if hasattr(trainer, "rollout"):
        _become(trainer.rollout, _repository_rollout(batch) if repository else _release_rollout(batch))
    if estimator != RL2_ESTIMATOR and hasattr(trainer, "actor"):
        method = "ppo_update" if repository else "update"
        _become(trainer.actor, {method: _update(type(trainer.actor), method, trainer.config, estimator, batch)})


def _become(instance: Any, methods: dict[str, Any]) -> None:
    """Makes ``instance`` one of a subclass of its class. RL2 goes by class names when it saves, so the name stays."""
    cls = type(instance)
    instance.__class__ = type(cls.__name__, (cls,), methods)


def _update(base: type, method: str, config: Any, estimator: str, batch: dict[str, Any]) -> Any:
    def update(self: Any, tensor_dict: Any, step: int) -> Any:
        if tensor_dict is not None and "advantages" in tensor_dict:  # rank 0 holds the batch
            write_advantages(config, tensor_dict, batch["cu_seqs"], estimator)
        return getattr(base, method)(self, tensor_dict, step)

    return update


def write_advantages(config: Any, tensor_dict: dict[str, Any], cu_seqs: Any, estimator: str) -> None:
    """Writes ``tensor_dict["advantages"]``, shape (sequences, tokens), from the turns' rewards.

    With ``actor.kl.type=reward`` RL2 has put the penalty into the rewards already; with ``advantage`` it is subtracted
    here as RL2 does.
    """
    advantages = turn_advantages(
        estimator,
        tensor_dict["rewards"],
        tensor_dict["action_mask"],
        cu_seqs,
        gamma=float(config.adv.gamma),
        responses_per_prompt=int(config.adv.responses_per_prompt),
    )
    kl = config.actor.kl
    if kl.coef > 0 and kl.type == "advantage":
        from RL2.utils.algorithms import compute_approx_kl

        advantages -= kl.coef * compute_approx_kl(
            tensor_dict["old_logps"], tensor_dict["ref_logps"], kl.reward_estimator
        )
    tensor_dict["advantages"] = advantages


def _repository_rollout(batch: dict[str, Any]) -> dict[str, Any]:
    from RL2.workers.rollout import Rollout

    async def call(self: Any, train: bool, step: int) -> Any:
        output = await Rollout.__call__(self, train, step)
        if train:
            batch["cu_seqs"] = output[1]
        return output

    return {"__call__": call}


def _release_rollout(batch: dict[str, Any]) -> dict[str, Any]:
    from RL2.workers import Rollout

    from gem_rl2.release import drop, take_episode

    async def rollout(self: Any, data: dict[str, Any], train: bool) -> Any:
        tensor_dicts, metric = await Rollout.rollout(self, data, train)
        await drop(data["extra_info"])
        # RL2 reads the first episode's metrics and expects the same of all, so one given up has some too.
        episode = take_episode(data["extra_info"]) or Episode("", stop_reason=StopReason.ABORTED)
        if masked(episode, current()):
            for tensor_dict in tensor_dicts:
                tensor_dict["action_mask"].zero_()
        for name, values in metrics(episode).items():
            if name.startswith("gem/"):  # RL2 writes the others, from the same turns
                metric[name] = values
        return tensor_dicts, metric

    def call(self: Any, data_list: Any, train: bool, step: int) -> Any:
        output = Rollout.__call__(self, data_list, train, step)
        if train:
            batch["cu_seqs"] = output[1]
        return output

    return {"rollout": rollout, "__call__": call}


def settings_of(config: Any) -> tuple[GemSettings, str]:
    """Reads the ``gem`` section, with what RL2's own configuration says filled in.

    Returns:
        The settings, and ``gem.estimator``.

    Raises:
        ValueError: an unknown key.
    """
    from omegaconf import OmegaConf

    section: Any = OmegaConf.to_container(config.get("gem") or OmegaConf.create(), resolve=True)
    values: dict[str, Any] = dict(section)
    estimator = str(values.pop("estimator", None) or "rebn")
    actor, repository = config.actor, contract() == "repository"
    ranks = (actor.cp_size if repository else actor.sp_size) * actor.tp_size
    if actor.max_length_per_device is not None:
        values.setdefault("max_context_tokens", int(actor.max_length_per_device) * ranks)
    if not repository:
        values.setdefault("tokenizer", str(actor.model_name))
        values.setdefault("max_turns", int(config.rollout.max_turns))
        values.setdefault("max_tokens_per_turn", config.rollout.train_sampling_params.max_new_tokens)
    return GemSettings.from_mapping(values), estimator


def run(config: Any) -> None:
    """RL2's ``main``, on a trainer that :func:`extend` has been given."""
    import torch.distributed as dist
    from omegaconf import OmegaConf, open_dict
    from RL2.trainer.ppo import PPOTrainer

    settings, estimator = settings_of(config)
    configure(settings)
    repository = contract() == "repository"
    with open_dict(config):
        if config.rollout.env_path is None:
            config.rollout.env_path = ENV_PATH
        if not repository:
            for name in ("train_sampling_params", "test_sampling_params"):
                # The environment must see whether an answer ended; see gem_rl2.release.step.
                OmegaConf.update(config.rollout, f"{name}.skip_special_tokens", False, force_add=True)
    try:
        if repository:
            from RL2.utils.communication import initialize_global_process_group

            initialize_global_process_group(True)
            trainer = PPOTrainer(config)
            extend(trainer, estimator)
            asyncio.run(trainer.train())
        else:
            from RL2.utils.comm import initialize_global_process_group

            initialize_global_process_group()
            asyncio.set_event_loop(asyncio.new_event_loop())  # RL2 asks for the current one; Python 3.14 makes none
            trainer = PPOTrainer(config)
            extend(trainer, estimator)
            trainer.train()
        dist.destroy_process_group()
    finally:
        # rl-square 0.0.2 leaves its servers running, and the repository does after a mistake at the start; Python
        # would wait for them.
        for process in multiprocessing.active_children():
            process.terminate()


def main() -> None:
    import hydra
    import RL2.trainer

    folder = os.path.join(os.path.dirname(os.path.abspath(RL2.trainer.__file__ or "")), "config")
    hydra.main(config_path=folder, config_name="ppo", version_base=None)(run)()


if __name__ == "__main__":
    main()

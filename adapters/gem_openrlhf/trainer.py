"""OpenRLHF's trainers with :class:`GemExperienceMaker`, :class:`GemSamplesGenerator` and GEM's metrics.

OpenRLHF builds both parts in its trainers' constructors and has no option for their classes, but keeps them in public
attributes; these subclasses put ours there. OpenRLHF's trainers are Ray actor classes, from which Ray lets nobody
inherit; ``__ray_actor_class__`` is the class as it was written.
"""

from __future__ import annotations

from typing import Any

import ray
from openrlhf.trainer.ppo_trainer import BasePPOTrainer, PPOTrainer
from openrlhf.trainer.ppo_trainer_async import GenerateSamplesActor, PPOTrainerAsync, TrainingActor, VLLMLock
from openrlhf.trainer.ppo_utils.experience import Experience
from ray.util.queue import Queue

from gem_openrlhf.experience_maker import GemExperienceMaker
from gem_openrlhf.samples import GemSamplesGenerator


class _Steps(BasePPOTrainer):  # type: ignore[misc]  # OpenRLHF has no type information
    """What both trainers share: the experience maker and the log."""

    experience_maker: GemExperienceMaker

    def use_gem(self) -> None:
        self.experience_maker = GemExperienceMaker(
            self.actor_model_group,
            self.critic_model_group,
            self.reward_model_group,
            self.reference_model_group,
            self.kl_ctl,
            self.strategy,
            self.tokenizer,
        )

    def _compute_rollout_stats(self, experiences: list[Experience]) -> dict[str, float]:
        return {**super()._compute_rollout_stats(experiences), **self.experience_maker.metrics}


class GemPPOTrainer(_Steps, PPOTrainer.__ray_actor_class__):  # type: ignore[misc]
    """Trainer and engine take turns; every episode is on policy."""

    samples_generator: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.use_gem()
        self.samples_generator = _generator(self.samples_generator)

    def evaluate(self, global_step: int, **generate_kwargs: Any) -> dict[str, float]:
        logs: dict[str, float] = super().evaluate(global_step, **generate_kwargs)
        extra = self.samples_generator.eval_metrics
        for logger in (self.wandb_logger, self.tensorboard_logger):
            if logger:
                logger.log_eval(global_step, extra)
        return {**logs, **{f"eval_{k}": v for k, v in extra.items()}}


class GemGenerateSamples(GenerateSamplesActor.__ray_actor_class__):  # type: ignore[misc]
    """The side of the asynchronous trainer that plays."""

    samples_generator: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.samples_generator = _generator(self.samples_generator)

    def _run_eval(self) -> dict[str, float]:
        logs: dict[str, float] = super()._run_eval()
        return {**logs, **{f"eval_{k}": v for k, v in self.samples_generator.eval_metrics.items()}}


class GemTraining(_Steps, TrainingActor.__ray_actor_class__):  # type: ignore[misc]
    """The side of the asynchronous trainer that learns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.use_gem()


class GemPPOTrainerAsync(PPOTrainerAsync.__ray_actor_class__):  # type: ignore[misc]
    """``--train.async_enable``: episodes of the next batch are played while this one trains."""

    def __init__(
        self,
        pretrain: str,
        strategy: Any,
        actor_model_group: Any,
        critic_model_group: Any,
        reward_model_group: Any,
        reference_model_group: Any,
        vllm_engines: Any,
        **generate_kwargs: Any,
    ) -> None:
        # OpenRLHF's constructor starts the two actors of fixed classes: this one starts ours, and does not call it.
        args = strategy.args
        for section, name in ((args.eval, "steps"), (args.ckpt, "save_steps")):
            if getattr(section, name) == -1:
                setattr(section, name, float("inf"))
        size = args.train.async_queue_size
        if size <= 0:
            raise ValueError(f"--train.async_queue_size must be positive, got {size}")
        self.rollout_queue, self.rollout_slots = Queue(maxsize=size), Queue(maxsize=size)
        for _ in range(size):
            self.rollout_slots.put(0)
        shared = {
            "pretrain": pretrain,
            "strategy": strategy,
            "vllm_engines": vllm_engines,
            "vllm_lock": VLLMLock.remote(),
            "rollout_queue": self.rollout_queue,
            "rollout_slots": self.rollout_slots,
        }
        self.generator_actor = ray.remote(GemGenerateSamples).remote(**shared, **generate_kwargs)
        self.trainer_actor = ray.remote(GemTraining).remote(
            **shared,
            actor_model_group=actor_model_group,
            critic_model_group=critic_model_group,
            reward_model_group=reward_model_group,
            reference_model_group=reference_model_group,
        )


def _generator(old: Any) -> GemSamplesGenerator:
    return GemSamplesGenerator(
        old.strategy, old.prompts_dataloader, old.eval_dataloader, old.tokenizer, old.vllm_engines
    )

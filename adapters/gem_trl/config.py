"""``GemConfig``: TRL's ``GRPOConfig`` and what an environment adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from gem_core.advantages import ESTIMATORS, GROUP_ESTIMATORS


@dataclass
class GemConfig(GRPOConfig):
    """Arguments of :class:`~gem_trl.GemGRPOTrainer`.

    Those of ``GRPOConfig`` keep their meaning; ``max_completion_length`` counts everything after the first prompt of
    an episode, environment tokens included. Two defaults differ: ``loss_type="dr_grpo"``, the masked sum over a
    constant that REINFORCE asks for, and ``max_completion_length=4096``, since it spans all turns.

    Raises:
        ValueError: a value that makes no sense, named.
    """

    loss_type: str = field(default="dr_grpo", metadata={"help": "See GRPOConfig."})
    max_completion_length: int | None = field(
        default=4096, metadata={"help": "Tokens after an episode's first prompt."}
    )

    env_id: str = field(default="", metadata={"help": "Id of gem_core.make()."})
    env_kwargs: dict[str, Any] | None = field(default=None, metadata={"help": "Arguments of the environment."})
    advantage: str = field(default="rebn", metadata={"help": f"Estimator: {', '.join(ESTIMATORS)}."})
    gae_lambda: float = field(default=0.95, metadata={"help": "Of turn-level GAE (advantage='gae', GemPPOTrainer)."})
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Of GemPPOTrainer's critic."})
    gamma: float = field(default=0.9, metadata={"help": "Discount a turn, for the turn-level estimators."})
    max_turns: int | None = field(default=None, metadata={"help": "Turns after which an episode is truncated."})
    max_tokens_per_turn: int | None = field(default=None, metadata={"help": "Tokens that one turn may sample."})
    max_context_tokens: int | None = field(default=None, metadata={"help": "Tokens of a prompt and all after it."})
    context: str = field(
        default="append",
        metadata={"help": "'append': one growing chat. 'rebuild': each observation is the whole prompt of its turn."},
    )
    system_prompt: str | None = field(default=None, metadata={"help": "Put before the first observation."})
    length_stop: str = field(
        default="pass",
        metadata={"help": "An answer cut by a token limit reaches the environment as it is ('pass') or empty."},
    )
    executor: str | None = field(
        default=None,
        metadata={
            "help": "None: environments run in the trainer's process, all episodes in step, best for cheap ones. "
            "'thread', 'process' or 'ray': beside it, no episode waiting for another's (see gem_core.vector)."
        },
    )
    share_seed: bool | None = field(
        default=None,
        metadata={"help": "The num_generations episodes of a group start alike; None = where the estimator needs it."},
    )
    keep_failed: bool = field(
        default=False, metadata={"help": "Train on episodes that a fault ended (environment or engine) too."}
    )
    mask_truncated: bool = field(
        default=False, metadata={"help": "Leave episodes that a limit ended out of the loss and the statistics."}
    )
    kl_stop: float | None = field(
        default=None,
        metadata={"help": "Skip a batch's further updates once its KL from the sampling policy exceeds this."},
    )
    reuse_logprobs: bool = field(
        default=False,
        metadata={"help": "Take the sampler's log probabilities for the old policy's instead of computing them again."},
    )
    eval_episodes: int = field(default=256, metadata={"help": "Held-out seeds that an evaluation plays."})
    eval_greedy: bool = field(default=True, metadata={"help": "Evaluate with the likeliest token, not by sampling."})
    sampled_episodes: int = field(default=4, metadata={"help": "Episodes of a batch that go to the run folder."})

    def __post_init__(self) -> None:
        parent: Any = super()
        parent.__post_init__()
        if self.advantage not in ESTIMATORS and self.advantage != "gae":
            known = ", ".join(sorted([*ESTIMATORS, "gae"]))
            raise ValueError(f"advantage={self.advantage!r} is unknown; there are {known}")
        if not 0.0 <= self.gae_lambda <= 1.0:
            raise ValueError(f"gae_lambda must lie in 0 to 1, got {self.gae_lambda!r}")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma must lie in 0 to 1, got {self.gamma!r}")
        if self.kl_stop is not None and not self.kl_stop > 0:
            raise ValueError(f"kl_stop must be positive or None, got {self.kl_stop!r}")
        if self.eval_episodes < 1:
            raise ValueError(f"eval_episodes must be positive, got {self.eval_episodes!r}")
        if self.advantage in GROUP_ESTIMATORS:
            if self.share_seed is False:
                raise ValueError(f"advantage={self.advantage!r} compares episodes of one seed: drop share_seed=False")
            local = self.per_device_train_batch_size * (self.steps_per_generation or 1)
            if local % (self.num_generations or 1):
                raise ValueError(
                    f"a process plays per_device_train_batch_size * steps_per_generation = {local} episodes a batch, "
                    f"which num_generations={self.num_generations} must divide, so that no group is split"
                )

    @property
    def groups_share_seed(self) -> bool:
        """See ``share_seed``."""
        return self.advantage in GROUP_ESTIMATORS if self.share_seed is None else self.share_seed

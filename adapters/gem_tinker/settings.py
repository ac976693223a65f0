"""``TinkerConfig``: what a run of :class:`~gem_tinker.TinkerTrainer` does."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gem_core as gem
from gem_core.advantages import ESTIMATORS, GROUP_ESTIMATORS
from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.core import Env, check_seed
from gem_core.session import Limits

#: Held-out evaluation uses the seeds from here on; training those below.
HELD_OUT_SEED = 2**31
#: Losses of the API that take advantages and the sampler's log probabilities.
LOSSES = ("importance_sampling", "ppo", "cispo")


@dataclass(frozen=True)
class EpisodeConfig:
    """Which environment, and how its episodes are played.

    Raises:
        ValueError: a value that makes no sense, named.
    """

    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: Names for :func:`gem_core.wrappers.wrapper_factory.get_wrapper_fns`, separated by commas.
    wrappers: str = ""
    #: ``append`` or ``rebuild``; see :class:`gem_core.EpisodeSession`.
    context: Literal["append", "rebuild"] = "append"
    #: ``template`` or ``append``; see :data:`gem_core.chat.HistoryPolicy`.
    history: Literal["template", "append"] = "template"
    system_prompt: str | None = None
    max_turns: int | None = None
    max_tokens_per_turn: int | None = 1024
    #: The model's context window.
    max_context_tokens: int | None = None
    length_stop: Literal["pass", "invalid"] = "pass"
    #: Seconds for each reset and step; None = no limit.
    env_timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if hasattr(self, name) and getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        if self.env_timeout_s is not None and not self.env_timeout_s > 0:
            raise ValueError(f"env_timeout_s must be positive or None, got {self.env_timeout_s!r}")
        self.limits()

    def limits(self) -> Limits:
        """The limits of an episode."""
        return Limits(
            max_turns=self.max_turns,
            max_tokens_per_turn=self.max_tokens_per_turn,
            max_context_tokens=self.max_context_tokens,
        )

    def make_env(self, tokenizer: Any) -> Env:
        """Builds the wrapped environment."""
        env = gem.make(self.env_id, **self.env_kwargs)
        if self.wrappers:
            from gem_core.wrappers.wrapper_factory import get_wrapper_fns

            for wrap in get_wrapper_fns(self.wrappers, tokenizer=tokenizer):
                env = wrap(env)
        return env

    def make_renderer(self, tokenizer: Any) -> Renderer:
        """Writes token ids; the wrapper ``concat_chat`` has applied the chat template already."""
        if self.context == "rebuild" and "concat_chat" in self.wrappers:
            return PlainRenderer(tokenizer)
        return ChatRenderer(tokenizer, history=self.history)


@dataclass(frozen=True)
class TinkerConfig(EpisodeConfig):
    """Adds the algorithm: by default the paper's REINFORCE with return batch normalization."""

    advantage: str = "rebn"
    #: Discount a turn, for the turn-level estimators.
    gamma: float = 0.9
    #: Groups of one update's batch, and episodes of each group, which start alike.
    groups: int = 128
    group_size: int = 1
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    adam_eps: float = 1e-8
    weight_decay: float = 0.0
    #: Largest norm of the gradient; 0.0 = any.
    grad_clip_norm: float = 0.0
    #: ``importance_sampling`` is REINFORCE where a batch is used once; ``ppo`` clips the ratio.
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    loss_config: Mapping[str, float] = field(default_factory=dict)
    #: Optimizer updates a batch is split into, and how often it is gone through.
    minibatches: int = 1
    epochs: int = 1
    #: What the summed loss is divided by: None = the minibatch's sampled tokens; a number = that constant.
    loss_divisor: float | None = None
    #: Train on episodes that a fault ended too.
    keep_failed: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seed(self.seed)
        if self.advantage not in ESTIMATORS:
            raise ValueError(f"advantage={self.advantage!r} is unknown; there are {', '.join(sorted(ESTIMATORS))}")
        if self.advantage in GROUP_ESTIMATORS and self.group_size < 2:
            raise ValueError(
                f"advantage={self.advantage!r} compares the episodes of a group: group_size must be above 1"
            )
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma must lie in 0 to 1, got {self.gamma!r}")
        for name in ("groups", "group_size", "minibatches", "epochs", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        if self.loss_divisor is not None and not self.loss_divisor > 0:
            raise ValueError(f"loss_divisor must be positive or None, got {self.loss_divisor!r}")
        if self.minibatches > self.groups * self.group_size:
            raise ValueError(f"minibatches={self.minibatches} of {self.groups * self.group_size} episodes")
        if self.minibatches * self.epochs > 1 and self.loss == "importance_sampling":
            raise ValueError(
                "loss='importance_sampling' does not bound how far several updates move from the sampling policy; "
                "use loss='ppo', or minibatches=1 and epochs=1"
            )


_CHOICES: dict[str, tuple[str, ...]] = {
    "context": ("append", "rebuild"),
    "history": ("template", "append"),
    "length_stop": ("pass", "invalid"),
    "loss": LOSSES,
}


def training_seed(run_seed: int, step: int, group: int) -> int:
    """The environment seed of one group of a training batch: a hash below :data:`HELD_OUT_SEED`.

    It depends on the step and not on consumed random numbers, so a resumed run goes on with the same games.
    """
    return random.Random(f"{run_seed}:{step}:{group}").randrange(HELD_OUT_SEED)

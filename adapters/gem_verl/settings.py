"""The ``data.gem`` section of a verl configuration."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gem_core.core import EnvWrapper, check_seed

#: Validation seeds start here, far from any training seed.
VALIDATION_SEED = 1_000_000_000


@dataclass(frozen=True)
class EnvChoice:
    """One environment of a mix."""

    env_id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    #: Share of the episodes, relative to the others'.
    weight: float = 1.0


@dataclass(frozen=True)
class GemSettings:
    """What verl's configuration says about the environments, under ``data.gem``.

    Set by ``+data.gem.env_id=game:GuessTheNumber-v0`` on the command line or a ``gem:`` block under ``data:``.
    """

    #: One id; or use ``envs`` for a mix.
    env_id: str | None = None
    #: Arguments of ``env_id``.
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    #: A weighted mix: a list of ``{env_id, kwargs, weight}``.
    envs: list[EnvChoice] = field(default_factory=list)
    #: Names for :func:`gem_core.wrappers.wrapper_factory.get_wrapper_fns`, separated by commas.
    wrappers: str = ""
    #: ``append`` or ``rebuild``; see :class:`gem_core.EpisodeSession`.
    context: Literal["append", "rebuild"] = "append"
    #: ``template`` or ``append``; see :data:`gem_core.chat.HistoryPolicy`.
    history: Literal["template", "append"] = "template"
    system_prompt: str | None = None
    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    length_stop: Literal["pass", "invalid"] = "pass"
    #: Seconds for each reset and step.
    env_timeout_s: float = 60.0
    #: Episode ``i`` of training starts from seed ``seed + i``; validation from ``seed + 1,000,000,000 + i``.
    seed: int = 0
    #: Length of the training and of the validation dataset (:class:`gem_verl.GemDataset`).
    train_size: int = 100_000
    val_size: int = 256
    #: Tokens of episodes that ended by a limit: ``keep`` them in the loss or ``mask`` them.
    truncated_loss: Literal["keep", "mask"] = "keep"
    #: Tokens of episodes that failed (environment or engine fault).
    failed_loss: Literal["keep", "mask"] = "mask"

    def __post_init__(self) -> None:
        if bool(self.env_id) == bool(self.envs):
            raise ValueError("data.gem needs either env_id or envs (a list of {env_id, kwargs, weight})")
        if self.env_kwargs and self.envs:
            raise ValueError("data.gem.env_kwargs goes with env_id; with envs, give kwargs in each entry")
        check_seed(self.seed)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"data.gem.{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("train_size", "val_size", "env_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"data.gem.{name} must be positive, got {getattr(self, name)!r}")
        for choice in self.envs:
            if not choice.weight > 0:
                raise ValueError(
                    f"data.gem.envs: the weight of {choice.env_id} must be positive, got {choice.weight!r}"
                )

    @classmethod
    def from_config(cls, data_config: Mapping[str, Any]) -> GemSettings:
        """Reads ``data_config["gem"]`` (``config.data`` of a verl run).

        Raises:
            ValueError: the section or a needed value is missing, or a key is unknown; the message names it.
        """
        section = data_config.get("gem")
        if not section:
            raise ValueError("verl's configuration has no data.gem section; add +data.gem.env_id=ID")
        values = _plain(section)
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown keys in data.gem: {unknown}; known are {sorted(known)}")
        envs = [EnvChoice(**e) for e in values.pop("envs", None) or []]
        return cls(**{k: v for k, v in values.items() if v is not None}, envs=envs)

    @property
    def choices(self) -> list[EnvChoice]:
        return self.envs or [EnvChoice(self.env_id or "", self.env_kwargs)]

    def choose(self, seed: int) -> EnvChoice:
        """The environment of the episode with this seed: drawn by weight, the same in any process."""
        choices = self.choices
        if len(choices) == 1:
            return choices[0]
        rng = random.Random(f"mix:{seed}")
        return rng.choices(choices, [c.weight for c in choices])[0]

    def make_env(self, env_id: str, kwargs: Mapping[str, Any], tokenizer: Any) -> Any:
        """Builds one wrapped environment."""
        import gem_core as gem

        env = gem.make(env_id, **kwargs)
        if self.wrappers:
            from gem_core.wrappers.wrapper_factory import get_wrapper_fns

            for wrap in get_wrapper_fns(self.wrappers, tokenizer=tokenizer):
                env = wrap(env)
                assert isinstance(env, EnvWrapper)
        return env


_CHOICES: dict[str, tuple[str, ...]] = {
    "context": ("append", "rebuild"),
    "history": ("template", "append"),
    "length_stop": ("pass", "invalid"),
    "truncated_loss": ("keep", "mask"),
    "failed_loss": ("keep", "mask"),
}


def _plain(section: Any) -> dict[str, Any]:
    """A DictConfig or mapping as plain Python values."""
    if hasattr(section, "_metadata"):  # an OmegaConf node; imported only where there is one
        from omegaconf import OmegaConf

        section = OmegaConf.to_container(section, resolve=True)
    return dict(section)

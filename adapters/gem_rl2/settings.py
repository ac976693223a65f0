"""What a run says about its environments: ``gem.*`` on the launcher's command line, or ``GEM_RL2_SETTINGS``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

#: JSON, or the path of a JSON file; read where the launcher has set nothing.
VARIABLE = "GEM_RL2_SETTINGS"


@dataclass(frozen=True)
class GemSettings:
    """How episodes are played; which environment and seed is each row's own (:mod:`gem_rl2.dataset`)."""

    #: Names for :func:`gem_core.wrappers.wrapper_factory.get_wrapper_fns`, separated by commas.
    wrappers: str = ""
    #: ``append`` or ``rebuild``; see :class:`gem_core.EpisodeSession`.
    context: Literal["append", "rebuild"] = "append"
    #: ``template`` or ``append``; see :data:`gem_core.chat.HistoryPolicy`.
    history: Literal["template", "append"] = "template"
    system_prompt: str | None = None
    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    #: Of one sequence, prompt included. RL2 stops the run at a sequence longer than ``max_length_per_device`` (times
    #: context and tensor parallel ranks); the launcher sets this limit to it.
    max_context_tokens: int | None = None
    length_stop: Literal["pass", "invalid"] = "pass"
    #: Seconds for each reset, step and close.
    env_timeout_s: float = 60.0
    #: Tokens of episodes that ended by a limit: ``keep`` them in the loss or ``mask`` them.
    truncated_loss: Literal["keep", "mask"] = "keep"
    #: Tokens of episodes that failed (an environment's fault).
    failed_loss: Literal["keep", "mask"] = "mask"
    #: Name or folder of the tokenizer; rl-square 0.0.2 gives environments none. The launcher sets it.
    tokenizer: str | None = None
    #: rl-square 0.0.2 does not say when it gives an episode up: one that waits this long for its next action is closed.
    idle_s: float = 3600.0

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"gem.{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("max_turns", "max_tokens_per_turn", "max_context_tokens", "env_timeout_s", "idle_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"gem.{name} must be positive, got {value!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> GemSettings:
        """Raises ValueError for an unknown key, named."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown keys in gem: {unknown}; known are {sorted(known)}")
        return cls(**{k: v for k, v in values.items() if v is not None})


_CHOICES: dict[str, tuple[str, ...]] = {
    "context": ("append", "rebuild"),
    "history": ("template", "append"),
    "length_stop": ("pass", "invalid"),
    "truncated_loss": ("keep", "mask"),
    "failed_loss": ("keep", "mask"),
}
_current: GemSettings | None = None


def configure(settings: GemSettings | None) -> None:
    """Sets this process's settings; None = read ``GEM_RL2_SETTINGS`` again."""
    global _current
    _current = settings


def current() -> GemSettings:
    """This process's settings.

    Raises:
        ValueError: ``GEM_RL2_SETTINGS`` is neither JSON nor the path of a JSON file, or has an unknown key.
    """
    global _current
    if _current is None:
        text = os.environ.get(VARIABLE, "{}")
        try:
            values = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as e:
            raise ValueError(f"{VARIABLE} must be a JSON object or the path of a JSON file: {e}") from e
        _current = GemSettings.from_mapping(values)
    return _current


@dataclass(frozen=True)
class Task:
    """What a row plays."""

    env_id: str
    env_kwargs: dict[str, Any]
    seed: int
    #: Episodes of one group start from the same state.
    group: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Task:
        """Reads ``row["extra_info"]``, or the row itself where it has no such column.

        Raises:
            ValueError: ``env_id`` or ``seed`` is missing. RL2 hands out copies of a row, which could not agree on a
                seed otherwise.
        """
        info = row.get("extra_info") or row
        if info.get("env_id") is None or info.get("seed") is None:
            raise ValueError(
                "a row needs env_id and seed (in extra_info or as columns); write the file with "
                f"`python -m gem_rl2.dataset OUT.jsonl --env ID`. This row has {sorted(info)}"
            )
        kwargs = info.get("env_kwargs") or {}
        env_id, seed = str(info["env_id"]), int(info["seed"])
        return cls(
            env_id=env_id,
            env_kwargs=json.loads(kwargs) if isinstance(kwargs, str) else dict(kwargs),
            seed=seed,
            group=str(info.get("group") or f"{env_id}#{seed}"),
        )

    def make_env(self, settings: GemSettings, tokenizer: Any) -> Any:
        """Builds the wrapped environment."""
        import gem_core as gem

        env = gem.make(self.env_id, **self.env_kwargs)
        if settings.wrappers:
            from gem_core.wrappers.wrapper_factory import get_wrapper_fns

            for wrap in get_wrapper_fns(settings.wrappers, tokenizer=tokenizer):
                env = wrap(env)
        return env

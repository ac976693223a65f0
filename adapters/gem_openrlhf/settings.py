"""Which environment an episode plays and how: from the prompt dataset's label, else from ``GEM_*`` variables."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from gem_core.core import Env, check_seed

#: Every setting may be given as an environment variable with this prefix (``GEM_MAX_TURNS=8``).
PREFIX = "GEM_"
#: Seeds of held-out rows start here, far from any training seed.
VALIDATION_SEED = 1_000_000_000


@dataclass(frozen=True)
class GemSettings:
    """What an episode plays. A row's label (a JSON object with these keys) wins over the environment variables."""

    #: Needed from one of the two.
    env_id: str | None = None
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    #: Of ``reset``; all samples of a row share it, so they start from the same state. None: from the row's text.
    seed: int | None = None
    #: Names for :func:`gem_core.wrappers.wrapper_factory.get_wrapper_fns`, separated by commas.
    wrappers: str = ""
    #: ``append`` or ``rebuild``; see :class:`gem_core.EpisodeSession`.
    context: Literal["append", "rebuild"] = "append"
    #: ``template`` or ``append``; see :data:`gem_core.chat.HistoryPolicy`.
    history: Literal["template", "append"] = "template"
    #: Arguments of the chat template (``{"enable_thinking": false}``).
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None
    max_turns: int | None = None
    #: None: OpenRLHF's ``--rollout.max_new_tokens``.
    max_tokens_per_turn: int | None = None
    length_stop: Literal["pass", "invalid"] = "pass"
    #: Seconds for building the environment, each reset and each step.
    env_timeout_s: float = 60.0
    #: Tokens of episodes that ended by a limit: ``keep`` them in the loss or ``mask`` them.
    truncated_loss: Literal["keep", "mask"] = "keep"
    #: Tokens of episodes that failed (environment or engine fault).
    failed_loss: Literal["keep", "mask"] = "mask"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"the setting {name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("max_turns", "max_tokens_per_turn", "env_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"the setting {name} must be positive, got {value!r}")
        for name in ("env_kwargs", "template_kwargs"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"the setting {name} must be a JSON object, got {getattr(self, name)!r}")
        if self.seed is not None:
            check_seed(self.seed)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> GemSettings:
        """Reads ``GEM_<NAME>`` variables (of this process where ``environ`` is None); others keep their defaults.

        Raises:
            ValueError: a value that does not fit; the message names the variable.
        """
        environ = os.environ if environ is None else environ
        values = {}
        for f in fields(cls):
            text = environ.get(variable(f.name))
            if text:
                values[f.name] = _parse(f.name, text)
        return cls(**values)

    def for_row(self, prompt: str, label: Any) -> GemSettings:
        """The settings of one row of the prompt dataset, with environment and seed filled in.

        A label that is no JSON object with an ``env_id`` (any dataset's) plays this object's environment from a seed
        derived from the row's text.

        Raises:
            ValueError: no environment is named anywhere, or the label has an unknown key.
        """
        row = _row(label)
        if unknown := sorted(set(row) - {f.name for f in fields(self)}):
            raise ValueError(
                f"unknown keys in a row's label: {unknown}; known are {sorted(f.name for f in fields(self))}"
            )
        if "env_id" in row and "env_kwargs" not in row:
            row["env_kwargs"] = {}  # another environment's arguments would not fit
        settings = replace(self, **row)
        if settings.env_id is None:
            raise ValueError(
                "no environment: write the dataset with 'python -m gem_openrlhf.dataset' and pass --data.label_key "
                f"label, or set {variable('env_id')}"
            )
        if settings.seed is None:
            settings = replace(settings, seed=zlib.crc32(f"{prompt}\0{label}".encode()))
        return settings

    @property
    def group_id(self) -> str:
        """The same for all episodes that start from the same state."""
        kwargs = f":{zlib.crc32(json.dumps(self.env_kwargs, sort_keys=True).encode()):08x}" if self.env_kwargs else ""
        return f"{self.env_id}{kwargs}#{self.seed}"

    def make_env(self, tokenizer: Any = None) -> Env:
        """Builds the wrapped environment."""
        import gem_core as gem

        assert self.env_id is not None
        env: Env = gem.make(self.env_id, **self.env_kwargs)
        if self.wrappers:
            from gem_core.wrappers.wrapper_factory import get_wrapper_fns

            for wrap in get_wrapper_fns(self.wrappers, tokenizer=tokenizer):
                env = wrap(env)
        return env


_CHOICES: dict[str, tuple[str, ...]] = {
    "context": ("append", "rebuild"),
    "history": ("template", "append"),
    "length_stop": ("pass", "invalid"),
    "truncated_loss": ("keep", "mask"),
    "failed_loss": ("keep", "mask"),
}


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _parse(name: str, text: str) -> Any:
    """A setting's value from a variable's text."""
    if name in ("env_kwargs", "template_kwargs"):
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError(f"{variable(name)} must be a JSON object, got {text!r}") from None
    kind: type = {"env_timeout_s": float, "seed": int, "max_turns": int, "max_tokens_per_turn": int}.get(name, str)
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{variable(name)} must be a number, got {text!r}") from None


def _row(label: Any) -> dict[str, Any]:
    """The label's settings; empty where it is no label of ours."""
    if isinstance(label, str) and label.lstrip().startswith("{"):
        try:
            label = json.loads(label)
        except ValueError:
            return {}
    return dict(label) if isinstance(label, Mapping) and "env_id" in label else {}

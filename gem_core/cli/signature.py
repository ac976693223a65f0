"""The arguments of an environment's constructor, for ``gem info``."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from gem_core.registration import EnvSpec


def parameters_of(spec: EnvSpec) -> dict[str, Any]:
    """Names and defaults; empty where the entry point cannot be imported."""
    target: Any = spec.entry_point
    if isinstance(target, str):
        module, name = target.split(":")
        try:
            target = getattr(importlib.import_module(module), name)
        except ImportError:
            return {}
    try:
        parameters = inspect.signature(target.__init__ if inspect.isclass(target) else target).parameters
    except (TypeError, ValueError):
        return {}
    return {
        n: None if p.default is p.empty else p.default
        for n, p in parameters.items()
        if n != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }

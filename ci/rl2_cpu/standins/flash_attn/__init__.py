"""A stand-in for flash-attn on a CPU: the two functions that ring-flash-attn calls, in plain PyTorch."""

from __future__ import annotations

from typing import Any

__version__ = "2.8.3"


def flash_attn_func(*_: Any, **__: Any) -> Any:
    """Imported by transformers when it loads a model; RL2 attends through ring-flash-attn instead."""
    raise NotImplementedError("this stand-in for flash-attn has the variable-length functions only")


def flash_attn_varlen_func(*_: Any, **__: Any) -> Any:
    """See :func:`flash_attn_func`."""
    raise NotImplementedError("this stand-in for flash-attn has no autograd of its own: use ring-flash-attn's")

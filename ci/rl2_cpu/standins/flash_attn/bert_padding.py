"""Imported by transformers when it loads a model; RL2 packs sequences itself."""

from __future__ import annotations

from typing import Any


def pad_input(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("this stand-in for flash-attn does not pad")


def unpad_input(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("this stand-in for flash-attn does not pad")

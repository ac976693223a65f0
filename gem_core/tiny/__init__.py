"""A tiny language model that ships as code: no download, learns a game within minutes on a CPU.

``python -m gem_core.tiny OUT_DIR`` writes a folder that every framework loads as it would a real model.
"""

from __future__ import annotations

from gem_core.tiny.corpus import corpus
from gem_core.tiny.model import DEFAULT_ENVS, build_tiny, load_tiny, order_numbers, save_tiny
from gem_core.tiny.tokenizer import build_tokenizer, number_ids
from gem_core.tiny.warm_start import demonstrations, warm_start

__all__ = [
    "DEFAULT_ENVS",
    "build_tiny",
    "build_tokenizer",
    "corpus",
    "demonstrations",
    "load_tiny",
    "number_ids",
    "order_numbers",
    "save_tiny",
    "warm_start",
]

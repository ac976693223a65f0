"""What rl-square 0.0.2 wraps a tensor's shards in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class LocalSerializedTensor:
    """One serialized tensor for each tensor-parallel rank."""

    values: list[Any]

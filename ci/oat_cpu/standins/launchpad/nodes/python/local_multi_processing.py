"""What a node's process gets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class PythonProcess:
    env: dict[str, str] = field(default_factory=dict)

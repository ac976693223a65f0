"""The arguments of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ServerArgs:
    model_path: str
    host: str = "127.0.0.1"
    port: int = 30000
    dtype: str = "auto"
    tp_size: int = 1
    mem_fraction_static: float | None = None
    enable_memory_saver: bool = False
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.tp_size != 1:
            raise ValueError(f"this stand-in for SGLang serves tp_size=1 only, got {self.tp_size}")

    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

"""What a run is given and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

#: How a run ended. ``ok``: exit status 0. ``error``: any other, or a signal of its own making. The others name the
#: limit that stopped it; ``killed`` is any limit without a name of its own, and a supervisor that died.
Verdict = Literal["ok", "error", "timeout", "memory", "output", "killed"]

#: Isolation, weakest first; see :mod:`gem_core.sandbox`.
LEVELS = ("process", "process+seccomp", "namespace", "namespace+seccomp")

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Most that one run may use. Each is a positive number."""

    #: Seconds of wall time, from the start of the program (waiting for a free worker does not count).
    timeout: float = 5.0
    #: Seconds of CPU time of one process; None = the wall time, rounded up, and one more.
    cpu_s: int | None = None
    #: Memory on top of what the interpreter takes: address space of each process, resident memory of all together.
    memory_bytes: int = 1024 * MIB
    #: Processes and threads at once.
    processes: int = 64
    #: Size of one file.
    file_bytes: int = 32 * MIB
    #: Size of all files together, which lie in memory (levels with namespaces only).
    disk_bytes: int = 64 * MIB
    open_files: int = 256
    stack_bytes: int = 64 * MIB
    #: What is kept of standard output and of standard error, each: half from the start, half from the end.
    output_bytes: int = 64 * 1024
    #: Output of both together at which the run is stopped.
    flood_bytes: int = 64 * MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "cpu_s":
                continue
            number = int | float if field.name == "timeout" else int
            if isinstance(value, bool) or not isinstance(value, number) or not value > 0:
                kind = "number of seconds" if field.name == "timeout" else "integer"
                raise ValueError(f"{field.name} must be a positive {kind}, got {value!r}")
        if self.timeout > 1e6:
            raise ValueError(f"timeout must be at most 1e6 seconds, got {self.timeout!r}")


@dataclass(frozen=True)
class RunResult:
    """What a program did."""

    #: Output as text (UTF-8; other bytes as ``\\xNN``), with a line where something was left out.
    stdout: str
    stderr: str
    #: Exit status, or minus the signal's number.
    exit_code: int
    verdict: Verdict
    #: In words, where the verdict does not say it all.
    detail: str
    wall_s: float
    #: User and system time of all processes of the run.
    cpu_s: float
    #: Bytes left out of :attr:`stdout` and of :attr:`stderr`.
    stdout_omitted: int = 0
    stderr_omitted: int = 0
    #: Whether the function that was to be called returned, and what (as JSON values).
    returned: bool = False
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"


def join_output(head: bytes, tail: bytes, total: int) -> tuple[str, int]:
    """Head and tail as one text, and how many bytes are missing between them."""
    omitted = total - len(head) - len(tail)
    if omitted <= 0:
        return decode(head + tail), 0
    return f"{decode(head)}\n[... {omitted} bytes left out ...]\n{decode(tail)}", omitted


def decode(data: bytes) -> str:
    """Bytes as text; what is not UTF-8 as ``\\xNN``."""
    return data.decode("utf-8", "backslashreplace")

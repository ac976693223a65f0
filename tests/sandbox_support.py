"""Counting processes and memory, for tests of what a sandbox leaves behind."""

from __future__ import annotations

import os


def descendants(of: int | None = None) -> dict[int, str]:
    """Process ids below this process (or ``of``) and their command lines."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: dict[int, str] = {}
    todo = [of or os.getpid()]
    while todo:
        parent = todo.pop()
        for pid, its_parent in parents.items():
            if its_parent == parent and pid not in found:
                found[pid] = _command_line(pid)
                todo.append(pid)
    return found


def resident_bytes() -> int:
    """Memory of all processes below this one."""
    total = 0
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/statm") as f:
                total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

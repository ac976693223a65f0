"""Finding, measuring and ending all processes that a run has started."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Tree:
    """The processes of one slot's runs.

    Args:
        proc: A descriptor of a /proc that shows this slot's own PID namespace only; None where there is none.
        own_namespace: The slot is process 1 of a PID namespace.
    """

    def __init__(self, proc: int | None, own_namespace: bool) -> None:
        self.own_namespace = own_namespace
        if proc is None and not own_namespace and os.path.isdir("/proc/self"):
            proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self.proc = proc
        self.base_pages = self._resident(os.getpid()) if proc is not None else 0

    def usage(self) -> tuple[int, int]:
        """``(processes, resident bytes)`` of what runs now, without what was inherited; zeros where unknown."""
        if self.proc is None:
            return 0, 0
        pids = self._pids()
        return len(pids), sum(max(0, self._resident(pid) - self.base_pages) for pid in pids) * _PAGE

    def end_all(self, leader: int) -> float:
        """Kills and reaps everything; returns the CPU seconds of what had not been waited for."""
        cpu = 0.0
        give_up = time.monotonic() + 5.0
        while True:
            if self.own_namespace:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)  # in one step everything of the namespace but this process
            else:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(leader, signal.SIGKILL)
                for pid in self._pids() if self.proc is not None else ():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            try:
                while True:
                    pid, _, usage = os.wait4(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    cpu += cpu_of(usage)
            except ChildProcessError:
                return cpu
            if time.monotonic() > give_up:
                return cpu
            time.sleep(0.0005)

    def _pids(self) -> list[int]:
        assert self.proc is not None
        if self.own_namespace:
            return [int(name) for name in os.listdir(self.proc) if name.isdigit() and name != "1"]
        found: list[int] = []
        todo = [os.getpid()]
        while todo:
            for child in self._children(todo.pop()):
                found.append(child)
                todo.append(child)
        return found

    def _children(self, pid: int) -> list[int]:
        children: list[int] = []
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as f:
                    children += map(int, f.read().split())
        except OSError:
            pass
        return children

    def _resident(self, pid: int) -> int:
        try:
            descriptor = os.open(f"{pid}/statm", os.O_RDONLY, dir_fd=self.proc)
        except OSError:
            return 0
        try:
            return int(os.read(descriptor, 200).split()[1])
        except (OSError, IndexError):
            return 0
        finally:
            os.close(descriptor)


def cpu_of(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime

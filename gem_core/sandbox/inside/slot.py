"""A slot: the supervisor that runs one program at a time, in a child of its own, and answers with what it did."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

from . import wire
from .processes import Tree, cpu_of
from .program import Job, become_program, open_standard_streams

TYPE_CHECKING = False
if TYPE_CHECKING:  # not the typing module's: what a template imports, every program pays for
    from collections.abc import Callable
    from typing import Any

#: Seconds between looks at what a program's processes use; single processes are stopped by the kernel at once.
WATCH_S = 0.02
_CHUNK = 1 << 16
_OUT_OF_MEMORY = re.compile(rb"(?:^|\n)[\w.]*MemoryError\b[^\n]*\s*$")


class Kept:
    """A stream's head and tail, and how much there was."""

    def __init__(self, most: int) -> None:
        self.head_size = most // 2
        self.tail_size = most - self.head_size
        self.head = bytearray()
        self.tail: deque[bytes] = deque()
        self.tail_held = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.head_size - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if not data:
            return
        self.tail.append(data)
        self.tail_held += len(data)
        while self.tail_held - len(self.tail[0]) >= self.tail_size:
            self.tail_held -= len(self.tail.popleft())

    def parts(self) -> tuple[bytes, bytes]:
        return bytes(self.head), b"".join(self.tail)[-self.tail_size :] if self.tail else b""


class Place:
    """Where a slot's programs run and how they are confined.

    Args:
        confine: Gives up privileges and installs the filter, in the child.
        close_from: Closes all descriptors from a number on.
        scratch: The folder that holds the program's own.
        clean: Empties it if the last run left anything there; takes the size of the next, 0 removes it.
        environment: The programs' environment.
        base_bytes: Address space of the template, on top of which the memory limit counts.
        extra_processes: Processes of the same user and namespace that are not the program's.
    """

    def __init__(
        self,
        tree: Tree,
        confine: Callable[[], None],
        close_from: Callable[[int], None],
        scratch: str,
        clean: Callable[[int], None],
        environment: dict[str, str],
        base_bytes: int,
        extra_processes: int,
    ) -> None:
        self.tree, self.confine, self.close_from = tree, confine, close_from
        self.scratch, self.clean, self.environment = scratch, clean, environment
        self.base_bytes, self.extra_processes = base_bytes, extra_processes


class Slot:
    def __init__(self, connection: socket.socket, life: int, place: Place) -> None:
        self.connection = connection
        self.life = life
        self.place = place
        self.null = os.open(os.devnull, os.O_RDWR)
        os.environ.update({**place.environment, "HOME": f"{place.scratch}/work", "TMPDIR": place.scratch})
        open_standard_streams()

    def serve(self) -> None:
        """Answers requests until the owner or the template goes."""
        idle = select.poll()
        idle.register(self.connection, select.POLLIN)
        idle.register(self.life, select.POLLIN)
        try:
            while True:
                events = dict(idle.poll())
                if self.life in events:
                    break
                header, blobs = wire.receive(self.connection)
                reply, parts = self.run(header, blobs)
                if not header.get("keep"):
                    try:
                        self.place.clean(header["disk_bytes"])
                    except OSError:
                        reply["retire"] = True  # whatever it is that stays, no other program shall see it
                wire.send(self.connection, reply, parts)
        except (EOFError, OSError):
            pass
        finally:
            with contextlib.suppress(OSError):
                self.place.clean(0)

    def run(self, header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """Runs one program; ``blobs`` are its code, its standard input and the contents of its files."""
        job = self._job(header, blobs)
        try:
            stdin = self._stdin(blobs[1])
        except OSError as e:
            return _not_started(f"its standard input ({len(blobs[1])} bytes) cannot be stored: {e.strerror}")
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        started = time.monotonic()
        try:
            pid = os.fork()
            if pid == 0:
                become_program(job, self.place.confine, self.place.close_from, stdin, out_write, err_write)
        except OSError as e:
            for descriptor in (out_read, out_write, err_read, err_write):
                os.close(descriptor)
            return _not_started(str(e))
        finally:
            if stdin != self.null:
                os.close(stdin)
        os.close(out_write)
        os.close(err_write)
        out, err = Kept(header["output_bytes"]), Kept(header["output_bytes"])
        watch = _Watch(self, pid, {out_read: out, err_read: err}, started, header)
        try:
            verdict, detail, status, cpu = watch.until_over()
        finally:
            os.close(out_read)
            os.close(err_read)
        exit_code = os.waitstatus_to_exitcode(status)
        if verdict == "":
            verdict, detail = _verdict(exit_code, err)
        reply = {
            "verdict": verdict,
            "detail": detail,
            "exit_code": exit_code,
            "wall_s": round(time.monotonic() - started, 6),
            "cpu_s": round(cpu, 6),
            "stdout_total": out.total,
            "stderr_total": err.total,
        }
        return reply, [*out.parts(), *err.parts()]

    def _job(self, header: dict[str, Any], blobs: list[bytes]) -> Job:
        place = self.place
        limits = [
            (resource.RLIMIT_CPU, header["cpu_s"], header["cpu_s"] + 1),
            (resource.RLIMIT_FSIZE, header["file_bytes"], header["file_bytes"]),
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_NOFILE, header["open_files"], header["open_files"]),
            (resource.RLIMIT_STACK, header["stack_bytes"], header["stack_bytes"]),
        ]
        if sys.platform == "linux":  # macOS counts neither as a program would expect
            memory = place.base_bytes + header["memory_bytes"]
            processes = header["processes"] + place.extra_processes
            limits += [(resource.RLIMIT_AS, memory, memory), (resource.RLIMIT_NPROC, processes, processes)]
            limits += [(resource.RLIMIT_MSGQUEUE, 0, 0), (resource.RLIMIT_RTPRIO, 0, 0)]
        folder = f"{place.scratch}/work"
        return Job(
            code=blobs[0].decode("utf-8", "surrogatepass"),
            argv=header.get("argv"),
            arguments=header.get("arguments", []),
            limits=limits,
            folder=folder,
            environment={**os.environ, **header["environment"]} if "environment" in header else None,
            files=list(zip(header.get("file_names", []), blobs[2:], strict=True)),
            supply_imports=header.get("supply_imports", False),
            isolated=header.get("isolated", False),
            call=header.get("call"),
        )

    def _stdin(self, data: bytes) -> int:
        """A descriptor that reads ``data``: a file, so that nobody has to feed a program that does not read."""
        if not data:
            return self.null
        try:
            descriptor = os.open(self.place.scratch, os.O_TMPFILE | os.O_RDWR, 0o600)
        except (AttributeError, OSError):  # macOS, or a file system that has no nameless files
            import tempfile

            with tempfile.TemporaryFile(dir=self.place.scratch) as f:
                descriptor = os.dup(f.fileno())
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            os.close(descriptor)
            raise
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


class _Watch:
    """Follows one run to its end and leaves no process of it."""

    def __init__(self, slot: Slot, pid: int, streams: dict[int, Kept], started: float, header: dict[str, Any]) -> None:
        self.slot, self.pid, self.streams = slot, pid, streams
        self.deadline = started + header["timeout"]
        self.header = header
        self.open = set(streams)
        self.poll = select.poll()
        for descriptor in streams:
            os.set_blocking(descriptor, False)
            self.poll.register(descriptor, select.POLLIN)
        self.poll.register(slot.connection, 0)  # POLLHUP only: the owner has gone
        self.poll.register(slot.life, select.POLLIN)
        self.exit_fd = _exit_descriptor(pid)
        if self.exit_fd is not None:
            self.poll.register(self.exit_fd, select.POLLIN)

    def until_over(self) -> tuple[str, str, int, float]:
        """Returns ``(verdict or "", detail, wait status, CPU seconds)``."""
        verdict = detail = ""
        status, cpu, tree = None, 0.0, self.slot.place.tree
        try:
            look = time.monotonic() + WATCH_S
            while True:
                now = time.monotonic()
                if now >= self.deadline:
                    verdict, detail = "timeout", f"stopped after {self.header['timeout']:g} s"
                    break
                if now >= look:
                    verdict, detail = self._over_limit()
                    if verdict:
                        break
                    look = now + WATCH_S
                wait = min(self.deadline, look) - now
                events = self.poll.poll(max(1, wait * 1000) if self.exit_fd is not None else min(2, wait * 1000))
                if self.slot.connection.fileno() in dict(events) or self.slot.life in dict(events):
                    raise EOFError
                self._read([fd for fd, _ in events if fd in self.open])
                if sum(kept.total for kept in self.streams.values()) > self.header["flood_bytes"]:
                    verdict, detail = "output", f"more than {self.header['flood_bytes']} bytes were written"
                    break
                pid, found, usage = os.wait4(self.pid, os.WNOHANG)
                if pid:
                    status, cpu = found, cpu_of(usage)
                    break
            if status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                _, status, usage = os.wait4(self.pid, 0)
                cpu = cpu_of(usage)
        finally:
            cpu += tree.end_all(self.pid)
            if self.exit_fd is not None:
                os.close(self.exit_fd)
        self._read(list(self.open), most=1 << 20)
        return verdict, detail, status, cpu

    def _read(self, ready: list[int], most: int = _CHUNK) -> None:
        for descriptor in ready:
            left = most
            while left > 0:
                try:
                    data = os.read(descriptor, _CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    self.poll.unregister(descriptor)
                    self.open.discard(descriptor)
                    break
                self.streams[descriptor].add(data)
                left -= len(data)

    def _over_limit(self) -> tuple[str, str]:
        processes, memory = self.slot.place.tree.usage()
        if memory > self.header["memory_bytes"]:
            return "memory", f"the program's processes used more than {self.header['memory_bytes']} bytes"
        if processes > self.header["processes"] + 1:
            return "killed", f"more than {self.header['processes']} processes"
        return "", ""


def _not_started(why: str) -> tuple[dict[str, Any], list[bytes]]:
    return {"verdict": "killed", "detail": f"the program could not be started: {why}", "exit_code": -9}, [b""] * 4


def _exit_descriptor(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _verdict(exit_code: int, err: Kept) -> tuple[str, str]:
    if exit_code == 0:
        return "ok", ""
    if exit_code == -signal.SIGXCPU:
        return "timeout", "stopped at the limit on CPU time"
    if exit_code < 0:
        with contextlib.suppress(ValueError):
            return "error", f"ended by {signal.Signals(-exit_code).name}"
        return "error", f"ended by signal {-exit_code}"
    head, tail = err.parts()
    if _OUT_OF_MEMORY.search((head + tail)[-2000:]):
        return "memory", "an allocation failed"
    return "error", ""


def folder_place(program_uid: int | None) -> tuple[str, Callable[[int], None]]:
    """A temporary folder in the host's file system, for hosts without mount namespaces."""
    import tempfile

    scratch = tempfile.mkdtemp(prefix="gem-sandbox-")

    def clean(disk_bytes: int) -> None:
        if disk_bytes == 0:
            _remove(scratch)
            return
        try:
            fresh = sorted(os.listdir(scratch)) == ["work"] and not os.listdir(f"{scratch}/work")
        except OSError:
            fresh = False
        if not fresh:
            _remove(scratch)
            os.mkdir(scratch, 0o700)
            make_work()

    def make_work() -> None:
        os.mkdir(f"{scratch}/work", 0o700)
        if program_uid is not None:
            for path in (scratch, f"{scratch}/work"):
                os.chown(path, program_uid, program_uid)

    make_work()
    return scratch, clean


def _remove(folder: str) -> None:
    import shutil

    for parent, folders, _ in os.walk(folder):  # a folder without permissions would keep its contents
        for name in folders:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)

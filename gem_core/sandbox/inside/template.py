"""The template process: imports what programs will need, once, and forks a slot whenever one is asked for.

Started by a fresh interpreter, so it is small whatever the size of the process that uses the sandbox, has one thread,
and holds none of that process's memory, files or environment.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys

from . import namespaces, seccomp, wire
from .processes import Tree
from .slot import Place, Slot, folder_place

TYPE_CHECKING = False
if TYPE_CHECKING:  # not the typing module's: what a template imports, every program pays for
    from collections.abc import Iterable
    from typing import Any

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38
_PID = struct.Struct("!i")
#: What most programs import, and cheap to keep.
_COMMON = ("bisect", "copy", "datetime", "heapq", "itertools", "math", "random", "re", "string", "typing")
#: Where root keeps the ids of slots: two for each, above what distributions and containers hand out.
_FIRST_OUTSIDE_ID, _OUTSIDE_IDS = 0x70000000, 1 << 20


def main(config: dict[str, Any]) -> None:
    """Serves one owner over the socket ``config["control"]`` until it closes."""
    control = socket.socket(fileno=config["control"])
    _preload(_COMMON)
    os.umask(0o022)
    loaded, missing = _preload(config["preload"])
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("500")  # where memory runs out, programs go before the process that trains
    gc.collect()
    gc.freeze()
    gc.disable()
    Template(control, config).serve({"loaded": loaded, "missing": missing})


def _preload(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    loaded, missing = [], {}
    for name in names:
        try:
            importlib.import_module(name)
            loaded.append(name)
        except Exception as e:
            missing[name] = f"{type(e).__name__}: {e}"
    return loaded, missing


class Template:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.slots: set[int] = set()
        self.created = 0
        # Slots hold the reading end and leave when the writing end, here alone, closes.
        self.life_read, self.life_write = os.pipe()

    def serve(self, hello: dict[str, Any]) -> None:
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        if sys.platform == "linux":
            namespaces.Kernel().prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wire.send(self.control, hello)
        watched: list[Any] = [self.control, wake_read]
        while True:
            ready = select.select(watched, [], [])[0]
            if wake_read in ready:
                os.read(wake_read, 4096)
                self._reap()
            if self.control not in ready:
                continue
            try:
                request, fds = wire.receive_fds(self.control, 1)
                wire.send(self.control, self._answer(request, fds))
            except (EOFError, OSError):
                os._exit(0)  # slots see the life pipe close

    def _answer(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        if request["op"] == "kill":
            self._reap()
            if request["pid"] in self.slots:  # not yet reaped, so the id is still this slot's
                os.kill(request["pid"], signal.SIGKILL)
            return {}
        try:
            pid = self._start_slot(request, fds[0])
        except OSError as e:
            return {"error": str(e)}
        finally:
            os.close(fds[0])
        self.slots.add(pid)
        return {"pid": pid}

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.slots.discard(pid)

    # -- starting slots ---------------------------------------------------------------------------------------

    def _start_slot(self, request: dict[str, Any], connection: int) -> int:
        """Forks a slot and returns its process id, or raises OSError saying what the host refused."""
        self.created += 1
        report_read, report_write = os.pipe()
        go_read, go_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (report_read, go_write, self.life_write):
                    os.close(descriptor)
                self.control.close()
                self._become_slot(request, connection, report_write, go_read)
            except BaseException as e:
                with contextlib.suppress(OSError):
                    os.write(report_write, b"!" + f"{type(e).__name__}: {e}".encode()[:500])
            finally:
                os._exit(1)
        os.close(report_write)
        os.close(go_read)
        try:
            return self._follow(pid, report_read, go_write)
        finally:
            os.close(report_read)
            os.close(go_write)

    def _follow(self, pid: int, report: int, go: int) -> int:
        """Talks a new slot through its start; its process id, once it is ready."""
        slot = pid
        while True:
            kind = os.read(report, 1)
            if kind == b"p":  # the slot is a child of the first process, which leaves
                slot = _PID.unpack(os.read(report, 4))[0]
                os.waitpid(pid, 0)
            elif kind == b"m":  # it has entered a user namespace and wants its ids mapped
                try:
                    namespaces.write_id_maps(slot, self._outside_id())
                    os.write(go, b"y")
                except OSError:
                    os.write(go, b"n")
            elif kind == b"r":
                return slot
            else:
                why = os.read(report, 512).decode(errors="replace") if kind else "the slot's process died at its start"
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(slot, 0)
                raise OSError(why)

    def _outside_id(self) -> int:
        return _FIRST_OUTSIDE_ID + (os.getpid() * 64 + self.created * 2) % _OUTSIDE_IDS

    def _become_slot(self, request: dict[str, Any], connection: int, report: int, go: int) -> None:
        """In the forked child: namespaces and ids as the level says; serves; never returns normally."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        level: str = request["level"]
        base_bytes = _address_space()
        if level.startswith("namespace"):
            place = self._namespace_place(request, report, go, base_bytes)
        else:
            place = self._process_place(level, base_bytes)
        os.write(report, b"r")
        os.close(report)
        os.close(go)
        if sys.platform == "linux":
            namespaces.Kernel().prctl(_PR_SET_DUMPABLE, 0)  # programs of the same user cannot look into it
        Slot(socket.socket(fileno=connection), self.life_read, place).serve()
        os._exit(0)

    def _namespace_place(self, request: dict[str, Any], report: int, go: int, base_bytes: int) -> Place:
        kernel = namespaces.Kernel()
        privileged = os.geteuid() == 0
        if privileged:
            try:
                kernel.unshare(namespaces.NEWPID)
            except OSError:  # root of a container, without the capabilities
                privileged = False
        if not privileged:
            uid, gid = os.geteuid(), os.getegid()
            kernel.unshare(namespaces.NEWUSER | namespaces.NEWPID | namespaces.INSIDE)
            namespaces.write_own_id_maps(uid, gid)
        # The first child after that is process 1 of the PID namespace; when it ends, all others do.
        pid = os.fork()
        if pid:
            os.write(report, b"p" + _PID.pack(pid))
            os._exit(0)
        program_uid = namespaces.PROGRAM_UID
        if privileged:
            # The root is built before a user namespace is entered: afterwards, what only root may look into (such as
            # a Python below /root) would be out of reach.
            kernel.unshare(namespaces.NEWNS)
            proc = namespaces.build_root(kernel, self.config["visible"])
            program_uid = self._enter_user_namespace(kernel, report, go)
        else:
            proc = namespaces.build_root(kernel, self.config["visible"])
        kernel.set_hostname("sandbox")
        disk_bytes: int = request["disk_bytes"]
        namespaces.mount_scratch(kernel, disk_bytes, program_uid)

        def confine() -> None:
            if privileged:
                os.setgroups([])
                os.setresgid(program_uid, program_uid, program_uid)
                os.setresuid(program_uid, program_uid, program_uid)
            else:
                kernel.drop_capabilities()

        if request["level"].endswith("seccomp"):
            # Once, for the supervisor and all that it forks: putting it on each program would take as long as the rest
            # of its start. What the supervisor itself needs (mounting) takes privileges, which programs do not have.
            seccomp.install(kernel.libc, seccomp.assemble(supervisor=True))
        else:
            kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
        mounted = disk_bytes

        def clean(disk: int) -> None:
            nonlocal mounted
            if disk and (disk != mounted or not namespaces.scratch_is_clean()):
                namespaces.renew_scratch(kernel, disk, program_uid)
                mounted = disk

        return Place(
            tree=Tree(proc, own_namespace=True),
            confine=confine,
            close_from=kernel.close_from,
            scratch="/tmp",
            clean=clean,
            environment=self.config["environment"],
            base_bytes=base_bytes,
            extra_processes=0 if privileged else 1,
        )

    def _enter_user_namespace(self, kernel: namespaces.Kernel, report: int, go: int) -> int:
        """As root: two ids without any right on the host, the supervisor's and the program's; returns the latter."""
        try:
            kernel.unshare(namespaces.NEWUSER | namespaces.INSIDE)
        except OSError:  # user namespaces are switched off, but root needs none
            kernel.unshare(namespaces.INSIDE)
            return self._outside_id()
        os.write(report, b"m")
        if os.read(go, 1) != b"y":
            raise OSError("the ids of a user namespace cannot be mapped")
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.setgroups([])
        return namespaces.PROGRAM_UID

    def _process_place(self, level: str, base_bytes: int) -> Place:
        if sys.platform == "linux":
            kernel = namespaces.Kernel()
            kernel.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans come here, not to the host's process 1

        program_uid = (
            self._outside_id()
            if os.geteuid() == 0 and _readable_by(self._outside_id(), os.path.dirname(os.__file__))
            else None
        )
        scratch, clean = folder_place(program_uid)
        filtered = level.endswith("seccomp")

        def confine() -> None:
            if program_uid is not None:
                os.setgroups([])
                os.setresgid(program_uid, program_uid, program_uid)
                os.setresuid(program_uid, program_uid, program_uid)
            elif sys.platform == "linux" and os.geteuid() == 0:
                with contextlib.suppress(OSError):
                    kernel.drop_capabilities()
            if filtered:
                seccomp.install(kernel.libc, seccomp.assemble(own_signals_only=os.getpid()))
            elif sys.platform == "linux":
                kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)

        # RLIMIT_NPROC counts all processes of the user here, so the limit on processes is the supervisor's watch;
        # the kernel's is only a last stop.
        return Place(
            tree=Tree(None, own_namespace=False),
            confine=confine,
            close_from=kernel.close_from if sys.platform == "linux" else lambda first: os.closerange(first, 4096),
            scratch=scratch,
            clean=clean,
            environment=self.config["environment"],
            base_bytes=base_bytes,
            extra_processes=_processes_of_user() + 64,
        )


def _readable_by(uid: int, path: str) -> bool:
    """Whether another user can import from ``path`` (a Python below a closed home folder cannot be)."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.listdir(path)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _address_space() -> int:
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 1 << 28


def _processes_of_user() -> int:
    """Threads of this user, roughly: what RLIMIT_NPROC counts besides the program."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                        count += len(os.listdir(f"/proc/{name}/task"))
    return count

"""This process's side of the sandbox's processes: starting a template, getting slots from it, talking to them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from typing import Any

from gem_core.sandbox.inside import wire

#: Seconds that a template may take to import its modules.
START_TIMEOUT_S = 60.0
#: Seconds that a template may take to start a slot.
SLOT_TIMEOUT_S = 20.0

_BOOT = (
    "import sys, json; c = json.loads(sys.argv[1]); p = c['paths']; sys.path[:] = [c['home'], *c['stdlib']]; "
    "from inside import template; sys.path[:] = p; sys.prefix = c['prefix']; sys.exec_prefix = c['prefix']; "
    "sys.executable = c['executable']; sys.argv[:] = ['']; template.main(c)"
)


class SandboxError(RuntimeError):
    """The sandbox cannot be started, or not at the level asked for."""


class Template:
    """The process that slots are forked from; see :mod:`gem_core.sandbox.inside.template`."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        config = {**_configuration(), "preload": list(preload), "control": theirs.fileno()}
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                # -S: no site module, so no .pth files; -s, -E would be redundant with the environment below.
                [sys.executable, "-S", "-B", "-c", _BOOT, json.dumps(config)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=config["environment"],
                start_new_session=True,  # Ctrl-C in a terminal must not reach it
            )
        except OSError as e:
            ours.close()
            raise SandboxError(f"{sys.executable} cannot be started: {e}") from e
        finally:
            theirs.close()
        self._control = ours
        try:
            hello, _ = wire.receive(ours, time.monotonic() + START_TIMEOUT_S)
        except (OSError, EOFError) as e:
            self.close()
            raise SandboxError(f"a fresh {sys.executable} did not start the sandbox: {e or 'it died'}") from None
        self.loaded: list[str] = hello["loaded"]
        self.missing: dict[str, str] = hello["missing"]

    def start_slot(self, level: str, disk_bytes: int) -> Slot:
        """Forks a slot.

        Raises:
            SandboxError: the host refuses what the level needs.
            OSError, EOFError: the template has died.
        """
        ours, theirs = socket.socketpair()
        request = {"op": "slot", "level": level, "disk_bytes": disk_bytes}
        try:
            reply = self._ask(request, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        if "error" in reply:
            ours.close()
            raise SandboxError(reply["error"])
        return Slot(self, ours, reply["pid"])

    def kill_slot(self, pid: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._ask({"op": "kill", "pid": pid}, [])

    def _ask(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        with self._lock:
            self._control.settimeout(SLOT_TIMEOUT_S)
            wire.send(self._control, request, fds=fds)
            return wire.receive(self._control, time.monotonic() + SLOT_TIMEOUT_S)[0]

    def close(self) -> None:
        """Ends the template and, with it, its slots."""
        self._control.close()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def disown(self) -> None:
        """In a forked child: the processes are the parent's."""
        self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # nothing to wait for here
            self._process = None


class Slot:
    """A supervisor and the connection to it; runs one program at a time."""

    def __init__(self, template: Template, connection: socket.socket, pid: int) -> None:
        self.template = template
        self.connection = connection
        self.pid = pid
        #: It could not clean up after its last run and leaves.
        self.retired = False

    def ask(self, header: dict[str, Any], blobs: list[bytes], deadline: float) -> tuple[dict[str, Any], list[bytes]]:
        self.connection.settimeout(max(0.1, deadline - time.monotonic()))
        wire.send(self.connection, header, blobs)
        return wire.receive(self.connection, deadline)

    def alive(self) -> bool:
        """False where the supervisor has gone while idle (its socket then reads as closed)."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """The supervisor leaves when its connection closes, and everything of its run with it."""
        self.connection.close()

    def kill(self) -> None:
        """For a supervisor that may not answer."""
        self.connection.close()
        self.template.kill_slot(self.pid)


def _configuration() -> dict[str, Any]:
    """What a template is told of this process: where Python and its packages are. Nothing else goes over."""
    stdlib = [p for p in _standard_library() if os.path.exists(p)]
    packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)]
    paths = [os.path.abspath(p) for p in (*stdlib, *packages)]
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    binary = os.path.dirname(os.path.realpath(sys.executable))
    visible = sorted({os.path.realpath(p) for p in prefixes} | prefixes | set(packages) | {binary} - {"/"}, key=len)
    return {
        "home": os.path.dirname(os.path.abspath(__file__)),
        "stdlib": stdlib,
        "paths": paths,
        "prefix": sys.prefix,
        "executable": sys.executable,
        "visible": [p for p in visible if p != "/"],
        "environment": {
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "HOME": "/tmp",
            "USER": "sandbox",
            "PYTHONHASHSEED": "0",  # sets in the same order in every run
            "PYTHONDONTWRITEBYTECODE": "1",
            # Threads of numerical libraries would be lost in the fork, and count as processes.
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            # Each thread of glibc's malloc otherwise reserves address space, which is what is limited.
            "MALLOC_ARENA_MAX": "1",
        },
    }


def _standard_library() -> list[str]:
    paths = sysconfig.get_paths()
    version = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return [
        os.path.join(os.path.dirname(paths["stdlib"]), version),
        paths["stdlib"],
        *dict.fromkeys((paths["platstdlib"], os.path.join(paths["stdlib"], "lib-dynload"))),
        sysconfig.get_config_var("DESTSHARED") or "",
    ]

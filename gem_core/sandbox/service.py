"""The sandbox as its users see it: one service for a whole process, any number of threads."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gem_core.sandbox.limits import LEVELS, Limits, RunResult
from gem_core.sandbox.requests import ask, blobs_of, command_header, limits_with, lost, numbers, with_value
from gem_core.sandbox.template import SandboxError, Slot, Template
from gem_core.sandbox.workspace import Workspace

#: Modules that run in the template before any program does, if the program names them.
DEFAULT_PRELOAD = ("numpy", "sympy")
#: How programs call modules that they need not import themselves.
_SHORT_NAMES = {"numpy": "np", "sympy": "sp", "pandas": "pd"}


class Sandbox:
    """Runs untrusted programs, each in a fresh process with limits, away from this process and the host.

    Thread-safe. Nothing is started before the first run; a copy made by ``fork`` or by pickling starts processes of its
    own. One program that breaks out of a limit, or its supervisor, never affects another run.

    Args:
        preload: Modules imported once, in advance. A program that names one is forked from a template that has it;
            others are forked from a smaller one, which is faster.
        max_workers: Programs at once; more wait for their turn. The number of usable cores, at least 4, by default.
        level: The level of isolation to use (see :data:`~gem_core.sandbox.LEVELS`); None = the strongest there is.
        require_level: The weakest level that will do.
        limits: Defaults of every run.

    Raises:
        ValueError: an unknown level.
        SandboxError: at the first run (or :meth:`describe`), where a level cannot be had; the message says why.
    """

    def __init__(
        self,
        preload: Sequence[str] = DEFAULT_PRELOAD,
        max_workers: int | None = None,
        level: str | None = None,
        require_level: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        for name, value in (("level", level), ("require_level", require_level)):
            if value is not None and value not in LEVELS:
                raise ValueError(f"{name} must be one of {', '.join(LEVELS)} (weakest first), got {value!r}")
        if level is not None and require_level is not None and LEVELS.index(level) < LEVELS.index(require_level):
            raise ValueError(f"level={level!r} is weaker than require_level={require_level!r}")
        if isinstance(preload, str) or not all(re.fullmatch(r"[A-Za-z_][\w.]*", m) for m in preload):
            raise ValueError(f"preload must be a sequence of module names, got {preload!r}")
        if max_workers is not None and (isinstance(max_workers, bool) or max_workers < 1):
            raise ValueError(f"max_workers must be a positive integer, got {max_workers!r}")
        self.preload = tuple(preload)
        self.max_workers = max_workers or max(4, usable_cores())
        self.level = level
        self.require_level = require_level
        self.limits = limits or Limits()
        self._reset()
        _sandboxes.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._turns = threading.BoundedSemaphore(self.max_workers)
        self._templates: dict[tuple[str, ...], Template] = {}
        self._idle: dict[tuple[str, ...], list[Slot]] = {}
        self._in_force: str | None = None
        self._refused: dict[str, str] = {}
        self._executor: ThreadPoolExecutor | None = None

    # -- running ----------------------------------------------------------------------------------------------

    def run(
        self,
        code: str,
        *,
        stdin: str | bytes = "",
        arguments: Sequence[str] = (),
        files: Mapping[str, str | bytes] | None = None,
        supply_imports: bool = False,
        call: tuple[str, Sequence[Any]] | None = None,
        limits: Limits | None = None,
        **changed: Any,
    ) -> RunResult:
        """Runs a Python program as ``__main__`` in an empty folder of its own.

        Args:
            code: The program's source.
            stdin: What it reads from standard input.
            arguments: Its ``sys.argv[1:]``.
            files: Name (relative, no ``..``) -> content of files that lie in its folder.
            supply_imports: Import well-known names (``np``, ``math``, ``Counter``, ...) that it uses without having
                defined them.
            call: A function of the code (or a method of its class ``Solution``) to call, and its arguments, as JSON
                values; what it returns is the result's ``value``. The code's ``__name__`` is then not ``__main__``.
            limits: Instead of the sandbox's own.
            **changed: Single fields of :class:`Limits`, such as ``timeout=2``.
        """
        header: dict[str, Any] = {"arguments": list(arguments), "supply_imports": supply_imports}
        if call is None:
            return self._run(code, header, stdin, files, limits_with(limits or self.limits, changed))
        mark = f"result {secrets.token_hex(8)} "
        header["call"] = (call[0], list(call[1]), mark)
        return with_value(self._run(code, header, stdin, files, limits_with(limits or self.limits, changed)), mark)

    def run_command(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        **changed: Any,
    ) -> RunResult:
        """As :meth:`run`, for a command of the host's system, such as ``["sh", "-c", script]``."""
        header = command_header(argv, environment)
        return self._run("", header, stdin, files, limits_with(limits or self.limits, changed))

    def run_many(self, code: str, stdins: Iterable[str | bytes], **kwargs: Any) -> list[RunResult]:
        """One run of ``code`` for each input, side by side; results in the order of the inputs."""
        return list(self._threads().map(lambda stdin: self.run(code, stdin=stdin, **kwargs), stdins))

    def workspace(self, limits: Limits | None = None) -> Workspace:
        """A folder that stays from run to run; see :class:`Workspace`."""
        return Workspace(self, limits or self.limits)

    def describe(self) -> dict[str, Any]:
        """What is in force on this host; starts the service where it is not running.

        ``level``, ``refused`` (stronger levels and why the host does not have them), ``preload``, ``missing`` (modules
        that could not be preloaded when a program first named them, and why), ``max_workers``, ``lacks`` (what the
        level does not keep a program from).
        """
        self.run("")
        assert self._in_force is not None
        missing = {name: why for t in list(self._templates.values()) for name, why in t.missing.items()}
        return {
            "level": self._in_force,
            "refused": dict(self._refused),
            "preload": [name for name in self.preload if name not in missing],
            "missing": missing,
            "max_workers": self.max_workers,
            "lacks": list(LACKS[self._in_force]),
        }

    def require(self, level: str) -> None:
        """Raises SandboxError where the level in force is weaker than ``level``."""
        if self._in_force is not None and LEVELS.index(self._in_force) >= LEVELS.index(level):
            return
        found = self.describe()
        if LEVELS.index(found["level"]) < LEVELS.index(level):
            why = "; ".join(f"{name}: {reason}" for name, reason in found["refused"].items())
            raise SandboxError(f"isolation of level {level!r} is needed, this host has {found['level']!r} ({why})")

    def close(self) -> None:
        """Ends all processes. The next run starts new ones."""
        with self._lock:
            idle, self._idle = self._idle, {}
            templates, self._templates = self._templates, {}
            executor, self._executor = self._executor, None
        for slots in idle.values():
            for slot in slots:
                slot.close()
        for template in templates.values():
            template.close()
        if executor is not None:
            executor.shutdown(wait=False)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        names = ("preload", "max_workers", "level", "require_level", "limits")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()
        _sandboxes.add(self)

    # -- inside -----------------------------------------------------------------------------------------------

    def _run(
        self,
        code: str,
        header: dict[str, Any],
        stdin: str | bytes,
        files: Mapping[str, str | bytes] | None,
        limits: Limits,
    ) -> RunResult:
        blobs, names = blobs_of(code, stdin, files)
        modules = tuple(m for m in self.preload if _names(code, m))
        header = {**header, **numbers(limits), "file_names": names}
        with self._turns:
            slot = self._take(modules)
            try:
                result = ask(slot, header, blobs, limits.timeout)
            except BaseException:
                slot.kill()
                raise
            if result is None:
                slot.kill()
                return lost(limits.timeout)
            if slot.retired:
                slot.close()
            else:
                self._give_back(modules, slot)
            return result

    def _take(self, modules: tuple[str, ...]) -> Slot:
        while True:
            with self._lock:
                idle = self._idle.get(modules)
                slot = idle.pop() if idle else None
            if slot is None:
                return self.new_slot(modules)
            if slot.alive():
                return slot
            slot.close()

    def _give_back(self, modules: tuple[str, ...], slot: Slot) -> None:
        with self._lock:
            if slot.template is not self._templates.get(modules):  # closed meanwhile
                spare: Slot | None = slot
            else:
                self._idle.setdefault(modules, []).append(slot)
                held = sum(map(len, self._idle.values()))
                # Each set of modules has slots of its own; those of another set make room.
                other = next((k for k, v in self._idle.items() if v and k != modules), modules)
                spare = self._idle[other].pop(0) if held > self.max_workers else None
        if spare is not None:
            spare.close()

    def new_slot(self, modules: tuple[str, ...]) -> Slot:
        """Starts a slot, and what it is forked from where that is not running."""
        with self._starting:  # apart from the lock of what is idle: nobody else waits for a start
            for last in (False, True):
                template = self._templates.get(modules)
                if template is None:
                    template = self._templates[modules] = Template(modules)
                try:
                    return self._slot_of(template)
                except (OSError, EOFError) as e:  # the template has died
                    template.close()
                    self._templates.pop(modules, None)
                    if last:
                        raise SandboxError(f"the sandbox's processes cannot be started: {e}") from None
        raise AssertionError("unreachable")

    def _slot_of(self, template: Template) -> Slot:
        """A slot of the level in force; the first call finds out which that is."""
        if self._in_force is not None:
            return self._started(template, self._in_force)
        self._refused = {}
        wanted = [self.level] if self.level is not None else list(reversed(LEVELS))
        least = LEVELS.index(self.require_level) if self.require_level is not None else 0
        for level in wanted:
            if LEVELS.index(level) < least:
                break
            try:
                slot = template.start_slot(level, self.limits.disk_bytes)
                self._check(slot)
            except SandboxError as e:
                self._refused[level] = str(e)
                continue
            self._in_force = level
            return slot
        why = "; ".join(f"{level}: {reason}" for level, reason in self._refused.items())
        asked = f"level={self.level!r}" if self.level is not None else f"require_level={self.require_level!r}"
        raise SandboxError(f"this host does not allow {asked} ({why})")

    def _started(self, template: Template, level: str) -> Slot:
        """What worked before is refused where the host is short of something for a moment; it gets another try."""
        for pause in (0.1, 0.5):
            with contextlib.suppress(SandboxError):
                return template.start_slot(level, self.limits.disk_bytes)
            time.sleep(pause)
        return template.start_slot(level, self.limits.disk_bytes)

    def _check(self, slot: Slot) -> None:
        """A first run: all that a level needs has then been set up once."""
        result = None
        with contextlib.suppress(OSError, EOFError):
            result = ask(slot, {**numbers(Limits(timeout=20)), "file_names": []}, [b"print(1)", b""], 20)
        if result is None or result.stdout != "1\n":
            slot.kill()
            raise SandboxError(result.stderr.strip() or result.detail if result else "its supervisor died")

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.max_workers, thread_name_prefix="sandbox")
            return self._executor


#: What each level does not keep a program from, besides what all share: the kernel itself is the host's.
LACKS: dict[str, tuple[str, ...]] = {
    "process": (
        "network is reachable",
        "files of the host that the user may read or write are within reach",
        "processes of the same user can be seen and signalled",
    ),
    "process+seccomp": (
        "files of the host that the user may read or write are within reach",
        "processes of the same user can be seen",
    ),
    "namespace": ("the whole kernel interface is open", "sockets outside IP, such as vsock, are not blocked"),
    "namespace+seccomp": (),
}


def _names(code: str, module: str) -> bool:
    short = _SHORT_NAMES.get(module)
    if module not in code and (short is None or short not in code):
        return False
    return re.search(rf"\b(?:{re.escape(module)}{f'|{short}' if short else ''})\b", code) is not None


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


# -- the process's own instance ---------------------------------------------------------------------------------------

_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_default: Sandbox | None = None
_default_lock = threading.Lock()


def default_sandbox() -> Sandbox:
    """The instance that everything in this process shares unless it is given another."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Sandbox()
        return _default


def _after_fork_in_child() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for sandbox in list(_sandboxes):
        for slots in sandbox._idle.values():
            for slot in slots:
                slot.connection.close()
        for template in sandbox._templates.values():
            template.disown()
        sandbox._reset()


def _close_all() -> None:
    for sandbox in list(_sandboxes):
        sandbox.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)

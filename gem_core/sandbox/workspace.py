"""A folder that stays from run to run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gem_core.sandbox.limits import Limits, RunResult
from gem_core.sandbox.requests import ask, blobs_of, command_header, limits_with, numbers
from gem_core.sandbox.template import SandboxError, Slot

if TYPE_CHECKING:
    from gem_core.sandbox.service import Sandbox


class Workspace:
    """A folder that stays from run to run, for tasks of several steps; in everything else as :class:`Sandbox`.

    Processes do not stay: whatever a run leaves running is ended with it. Not thread-safe. Close it, or use it in a
    ``with`` statement; the folder is gone then.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self.sandbox = sandbox
        self.limits = limits
        self._slot: Slot | None = None
        self._closed = False
        self._owner = os.getpid()

    def run(
        self,
        code: str,
        *,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        isolated: bool = False,
        **changed: Any,
    ) -> RunResult:
        """A Python program; see :meth:`Sandbox.run`.

        ``isolated=True`` keeps it from importing modules that an earlier run left in the folder.
        """
        return self._run(code, {"isolated": isolated}, stdin, files, changed)

    def run_command(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        **changed: Any,
    ) -> RunResult:
        """A command; see :meth:`Sandbox.run_command`."""
        return self._run("", command_header(argv, environment), stdin, files, changed)

    def write_files(self, files: Mapping[str, str | bytes]) -> None:
        """Puts files into the folder.

        Raises:
            OSError: one cannot be written.
        """
        result = self._run("", {}, "", files, {})
        if not result.ok:
            raise OSError(f"the files could not be written: {result.stderr.strip() or result.detail}")

    def close(self) -> None:
        self._closed = True
        slot, self._slot = self._slot, None
        if slot is not None and self._owner == os.getpid():
            slot.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(
        self,
        code: str,
        header: dict[str, Any],
        stdin: str | bytes,
        files: Mapping[str, str | bytes] | None,
        changed: dict[str, Any],
    ) -> RunResult:
        if self._closed:
            raise RuntimeError("the workspace is closed")
        if self._owner != os.getpid():
            raise RuntimeError("a workspace belongs to the process that opened it")
        limits = replace(limits_with(self.limits, changed), disk_bytes=self.limits.disk_bytes)
        blobs, names = blobs_of(code, stdin, files)
        if self._slot is None:
            self._slot = self.sandbox.new_slot(())
        request = {**header, **numbers(limits), "file_names": names, "keep": True}
        try:
            result = ask(self._slot, request, blobs, limits.timeout)
        except BaseException:
            self._lose()
            raise
        if result is None:
            self._lose()
            raise SandboxError("the workspace's supervisor died, and its files with it")
        return result

    def _lose(self) -> None:
        slot, self._slot = self._slot, None
        self._closed = True
        if slot is not None:
            slot.kill()

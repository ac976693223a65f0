"""Runs untrusted Python programs and shell commands.

A template process, started fresh and small, imports chosen modules once. Supervisors forked from it ("slots") each
hold a PID, mount, network, IPC and user namespace; every program is a fresh child of a slot, with limits of its own,
and nothing of it is left when the answer comes. Levels of isolation, weakest first (:data:`LEVELS`):

``process``
    Limits (:class:`Limits`), an empty folder, an environment without secrets, the process tree ended with the run.
``process+seccomp``
    No network, no tracing; signals reach only the program's own process.
``namespace``
    A process tree, network (without interfaces), IPC and file system of the run's own: it sees the system's and
    Python's files, read-only, and its own folder, in memory and of limited size. User ids of its own.
``namespace+seccomp``
    Both.

The strongest that the host allows is used; :meth:`Sandbox.describe` says which, and ``require_level`` refuses less.
:class:`~gem_core.sandbox.container.ContainerSandbox` has the same interface on Docker or Podman.
"""

from __future__ import annotations

from gem_core.sandbox.limits import LEVELS, Limits, RunResult, Verdict
from gem_core.sandbox.service import Sandbox, default_sandbox
from gem_core.sandbox.template import SandboxError
from gem_core.sandbox.workspace import Workspace

__all__ = ["LEVELS", "Limits", "RunResult", "Sandbox", "SandboxError", "Verdict", "Workspace", "default_sandbox"]

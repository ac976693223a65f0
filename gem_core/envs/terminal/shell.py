"""A shell session in a workspace: its folder and its exported variables go on from command to command."""

from __future__ import annotations

import base64
from typing import Any

from gem_core.sandbox import RunResult, Workspace

# Each command is a shell of its own (nothing is left running between two), so where it ends is written down for the
# next one. A command that is stopped at a limit leaves the session as it was before.
_SESSION = """
. "$TMPDIR/.session" 2>/dev/null
cd -- "$(cat "$TMPDIR/.folder" 2>/dev/null)" 2>/dev/null || cd
trap 'pwd > "$TMPDIR/.folder"; export -p > "$TMPDIR/.session"' EXIT
eval "$1"
"""
_SAVE = """
import base64, io, os, sys, tarfile
os.chdir(os.environ["TMPDIR"])
data = io.BytesIO()
with tarfile.open(fileobj=data, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
    for name in ("work", ".folder", ".session"):
        if os.path.lexists(name):
            archive.add(name)
print(base64.b64encode(data.getvalue()).decode())
"""
_RESTORE = """
import base64, io, os, sys, tarfile
os.chdir(os.environ["TMPDIR"])
with tarfile.open(fileobj=io.BytesIO(base64.b64decode(sys.stdin.read())), mode="r:gz") as archive:
    archive.extractall(**({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
"""
#: Most that a saved folder may take, packed.
_MAX_SAVED = 64 << 20


class Shell:
    """Runs commands one after another in ``workspace``."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def run(self, command: str, **limits: Any) -> RunResult:
        """Runs one command line (or several lines); standard input is empty."""
        return self.workspace.run_command(["bash", "--noprofile", "--norc", "-c", _SESSION, "bash", command], **limits)

    def folder(self) -> str:
        """Where the next command runs, with the session's first folder as ``~``."""
        result = self.run(r'printf %s "${PWD/#$HOME/\~}"')
        return result.stdout if result.ok and result.stdout else "~"

    def save(self) -> str:
        """The folder and the session as text.

        Raises:
            RuntimeError: it cannot be read or is too large.
        """
        result = self.workspace.run(_SAVE, isolated=True, timeout=30, output_bytes=2 * _MAX_SAVED)
        if not result.ok or result.stdout_omitted:
            raise RuntimeError(f"the folder cannot be saved: {result.stderr.strip()[-200:] or result.detail}")
        return result.stdout.strip()

    def restore(self, saved: str) -> None:
        """Puts back what :meth:`save` returned, into an empty workspace."""
        base64.b64decode(saved, validate=True)
        result = self.workspace.run(_RESTORE, stdin=saved, isolated=True, timeout=30)
        if not result.ok:
            raise RuntimeError(f"the folder cannot be restored: {result.stderr.strip()[-200:] or result.detail}")

"""What a terminal task is: words, files, and a check."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

#: Largest file, and most of them, that a task folder may hold.
_MAX_FILE, _MAX_FILES = 8 << 20, 1000


@dataclass(frozen=True)
class TerminalTask:
    """One task, the same for every seed."""

    name: str
    #: What the agent is asked to do.
    instruction: str
    #: A Python program that runs in the agent's folder once the agent is done. Exit status 0 = solved; a number from 0
    #: to 1 as its last line of output is the reward instead. Nothing of it lies in the folder while the agent works.
    check: str
    #: Name -> content of what the folder holds at the start.
    files: dict[str, str | bytes] = field(default_factory=dict)
    #: Shell commands that are run in the folder before the agent's first turn.
    setup: str = ""
    #: Shell commands that solve it, for tests and demonstrations.
    solution: str = ""

    @staticmethod
    def from_folder(path: str | pathlib.Path) -> TerminalTask:
        """Reads a task from ``instruction.md``, ``check.py`` or ``check.sh``, and, where there are any, ``files/``,
        ``setup.sh`` and ``solution.sh``.

        Raises:
            ValueError: a file is missing or too large.
        """
        folder = pathlib.Path(path)
        if not folder.is_dir():
            raise ValueError(f"the task folder {str(folder)!r} does not exist")
        instruction, check, script = folder / "instruction.md", folder / "check.py", folder / "check.sh"
        if not instruction.is_file() or not (check.is_file() or script.is_file()):
            raise ValueError(f"the task folder {str(folder)!r} needs instruction.md and check.py (or check.sh)")
        files: dict[str, str | bytes] = {}
        for found in sorted((folder / "files").rglob("*")):
            if found.is_file():
                if found.stat().st_size > _MAX_FILE or len(files) >= _MAX_FILES:
                    raise ValueError(f"{str(found)!r}: a task holds at most {_MAX_FILES} files of {_MAX_FILE} bytes")
                files[found.relative_to(folder / "files").as_posix()] = found.read_bytes()
        return TerminalTask(
            name=folder.name,
            instruction=instruction.read_text().strip(),
            check=check.read_text() if check.is_file() else _RUN_SCRIPT.format(script=script.read_text()),
            files=files,
            setup=_text(folder / "setup.sh"),
            solution=_text(folder / "solution.sh"),
        )


_RUN_SCRIPT = "import subprocess, sys\nsys.exit(subprocess.run(['sh', '-c', {script!r}]).returncode)"


def _text(path: pathlib.Path) -> str:
    return path.read_text() if path.is_file() else ""

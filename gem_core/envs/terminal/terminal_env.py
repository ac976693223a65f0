"""The environment of the terminal tasks."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from typing import Any

from gem_core.core import Env, Info, StepTuple, rng_from_state, rng_state
from gem_core.envs.terminal.shell import Shell
from gem_core.envs.terminal.task import TerminalTask
from gem_core.sandbox import Limits, RunResult, Sandbox, default_sandbox

#: Draws a task from a generator.
TaskMaker = Callable[[random.Random], TerminalTask]

_BLOCK = re.compile(
    r"(?P<fence>`{3,})[ \t]*(?:bash|sh|shell|console|zsh)?[ \t]*\n(?P<code>.*?)(?:(?<=\n)[ \t]*(?P=fence)|\Z)"
    r"|<(?P<tag>bash|shell)>(?P<tagged>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL,
)
_SUBMIT = ("submit", "exit", "done")
_FORM = "one ```bash block of shell commands (a block with the single word submit when you are done)"


class TerminalEnv(Env):
    """Shell commands in a folder of the episode's own, in the sandbox; a check says at the end whether it is solved.

    An action's last ```` ```bash ```` block (or ``<bash>...</bash>``) is run; its output is the next observation. The
    working folder and exported variables go on from turn to turn, background processes do not. ``submit`` ends the
    episode (``terminated``), as does the last turn or the episode's time (``truncated``): then the check runs and gives
    the reward, 0.0 to 1.0. An action without a block costs its turn.

    ``info``: ``turn``, ``action_is_valid``, ``exit_code`` and ``verdict`` of the command
    (:class:`gem_core.sandbox.RunResult`); at the end ``success`` and ``score``.

    Args:
        task: A name of :mod:`gem_core.envs.terminal.tasks`, a :class:`TerminalTask`, a function that draws one from
            a :class:`random.Random`, or a task folder (:meth:`TerminalTask.from_folder`).
        max_turns: Actions an episode.
        command_timeout: Seconds that one action may take.
        episode_timeout: Seconds that an episode may take, the agent's thinking included; None = no limit.
        max_output_chars: Longer output keeps its head and tail.
        require_level: The least isolation that will do; the agent's commands are as free as it lets them be.
        sandbox: Instead of the process's own.

    Raises:
        ValueError: an unknown task or a limit that is not positive.
        gem_core.sandbox.SandboxError: at ``reset``, where the host does not have ``require_level``.
    """

    cost = "waits"

    def __init__(
        self,
        task: str | TerminalTask | TaskMaker,
        max_turns: int = 10,
        command_timeout: float = 10.0,
        episode_timeout: float | None = None,
        max_output_chars: int = 8_000,
        require_level: str = "namespace",
        sandbox: Sandbox | None = None,
    ) -> None:
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise ValueError(f"max_turns must be a positive integer, got {max_turns!r}")
        if episode_timeout is not None and not episode_timeout > 0:
            raise ValueError(f"episode_timeout must be a positive number of seconds or None, got {episode_timeout!r}")
        self._make = _task_maker(task)
        self._limits = Limits(timeout=command_timeout, output_bytes=max_output_chars)
        self.max_turns, self.episode_timeout, self.require_level = max_turns, episode_timeout, require_level
        self._sandbox = sandbox
        self.task: TerminalTask | None = None
        self.turn = 0
        self._shell: Shell | None = None
        self._folder = "~"
        self._deadline: float | None = None

    # -- the contract -----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        if options:
            raise ValueError(f"TerminalEnv.reset() takes no options, got {sorted(options)}")
        super().reset(seed)
        self.task = self._make(self.rng)
        self.turn, self._folder = 0, "~"
        shell = self._open()
        shell.workspace.write_files(self.task.files)
        if self.task.setup:
            done = shell.run(self.task.setup, timeout=60)
            if not done.ok:
                raise RuntimeError(f"the setup of task {self.task.name!r} failed: {done.stderr.strip() or done.detail}")
        self._start_clock(self.episode_timeout)
        text = (
            f"{self.task.instruction}\n\nYou work in a Linux shell, without network, in at most {self.max_turns} "
            f"turns. Each turn, write {_FORM}."
        )
        return text, self._info(valid=True)

    def step(self, action: str) -> StepTuple:
        if self._shell is None or self.task is None:
            raise RuntimeError("TerminalEnv: the episode is over or was never started; call reset()")
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}")
        self.turn += 1
        command = find_command(action)
        submitted = command is not None and command.strip() in _SUBMIT
        info: Info = {}
        if command is None:
            text = f"No command was found. Write {_FORM}."
        elif submitted:
            text = ""
        else:
            result = self._shell.run(command)
            self._folder = self._shell.folder()
            info = {"exit_code": result.exit_code, "verdict": result.verdict}
            text = _describe(result)
        late = self._deadline is not None and time.monotonic() >= self._deadline
        if not (submitted or late or self.turn >= self.max_turns):
            return text, 0.0, False, False, {**self._info(valid=command is not None), **info}
        score, report = self._score()
        self._close_shell()
        ending = "Solved." if score >= 1.0 else f"Not solved{f' ({score:g} of 1)' if score else ''}."
        why = "" if submitted else "The time is over. " if late else f"That was the last of {self.max_turns} turns. "
        text = "\n".join(part for part in (text, f"{why}{ending}") if part)
        info = {**self._info(valid=command is not None), **info, "score": score, "check_output": report}
        return text, score, submitted, not submitted, {**info, "success": score >= 1.0}

    def sample_random_action(self) -> str:
        return f"```bash\n{self.action_rng.choice(('ls -la', 'pwd', 'cat *', 'wc -l *', 'find .', 'submit'))}\n```"

    def get_state(self) -> dict[str, Any]:
        if self.task is not None and any(isinstance(content, bytes) for content in self.task.files.values()):
            raise NotImplementedError(f"task {self.task.name!r} holds binary files and cannot be saved")
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "turn": self.turn,
            "folder": self._folder,
            "seconds_left": left,
            "task": None if self.task is None else dict(vars(self.task)),
            "files": self._shell.save() if self._shell is not None else None,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng, self._action_rng = rng_from_state(state["rng"]), rng_from_state(state["action_rng"])
        self.turn, self._folder = state["turn"], state["folder"]
        self.task = None if state["task"] is None else TerminalTask(**state["task"])
        self._close_shell()
        if state["files"] is not None:
            self._open().restore(state["files"])
        self._start_clock(state["seconds_left"])

    def close(self) -> None:
        self._close_shell()

    # -- inside -----------------------------------------------------------------------------------------------

    def _open(self) -> Shell:
        self._close_shell()
        sandbox = self._sandbox if self._sandbox is not None else default_sandbox()
        sandbox.require(self.require_level)
        self._shell = Shell(sandbox.workspace(self._limits))
        return self._shell

    def _close_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.workspace.close()

    def _start_clock(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def _score(self) -> tuple[float, str]:
        assert self._shell is not None
        assert self.task is not None
        result = self._shell.workspace.run(self.task.check, isolated=True, timeout=max(30.0, self._limits.timeout))
        lines = result.stdout.strip().splitlines()
        if result.ok and lines and re.fullmatch(r"[01](?:\.\d+)?(?:e-\d+)?", lines[-1].strip()):
            return min(1.0, float(lines[-1])), result.stdout
        return float(result.ok), result.stdout + result.stderr

    def _info(self, *, valid: bool) -> Info:
        info: Info = {"turn": self.turn, "action_is_valid": valid, "success": False}
        if self._shell is not None:
            info["suffix"] = f"Turn {self.turn + 1} of {self.max_turns}. {self._folder} $"
        return info


def find_command(action: str) -> str | None:
    """The commands of an action: its last shell block, or None."""
    found = [m["code"] if m["tag"] is None else m["tagged"] for m in _BLOCK.finditer(action)]
    commands = [text.strip("\n").rstrip() for text in found if text.strip()]
    return commands[-1].replace("\r\n", "\n") if commands else None


def _describe(result: RunResult) -> str:
    parts = [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]
    if result.verdict not in ("ok", "error"):
        parts.append(f"[{result.detail or result.verdict}]")
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    return "\n".join(part for part in parts if part) or "[no output]"


def _task_maker(task: str | TerminalTask | TaskMaker) -> TaskMaker:
    if isinstance(task, TerminalTask):
        return lambda _: task
    if callable(task):
        return task
    if not isinstance(task, (str, os.PathLike)):
        raise ValueError(f"task must be a name, a folder, a TerminalTask or a function, got {task!r}")
    from gem_core.envs.terminal.tasks import TASKS

    if task in TASKS:
        return TASKS[task].make
    if os.path.isdir(task):
        found = TerminalTask.from_folder(task)
        return lambda _: found
    raise ValueError(f"no task is called {task!r}, and no folder; tasks: {', '.join(TASKS)}")

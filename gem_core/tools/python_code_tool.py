"""A tool that runs Python code the agent writes."""

from __future__ import annotations

from typing import ClassVar

from gem_core.sandbox import RunResult, Sandbox, default_sandbox
from gem_core.tools.base_tool import BaseTool, ToolCall
from gem_core.tools.code_blocks import CALL_NAMES, find_code

#: ``sandbox_type`` of GEM 0.1 -> the least level of isolation.
_GEM_SANDBOXES = {"none": None, "bwrap": "namespace"}


class PythonCodeTool(BaseTool):
    """Runs the first piece of Python in an action and answers with what it printed.

    Understood: ``<python>...</python>``, fenced blocks marked ``python``, and a chat model's ``<tool_call>`` (see
    :func:`~gem_core.tools.code_blocks.find_code`). Each call is a fresh process in the :mod:`gem_core.sandbox`; names
    of well-known modules (``np``, ``math``, ``Counter``, ...) need no import. An exit status other than 0, and every
    limit that stops the program, is an error.

    Args:
        timeout: Seconds that one call may take.
        sandbox_type: As in GEM 0.1: ``"none"`` takes the strongest isolation the host has, ``"bwrap"`` insists on
            namespaces.
        keep_error_last_line: Of an error, show the last line only.
        sandbox: The sandbox to use instead of the process's own.
        max_output_chars: Longer output keeps its head and tail.
        memory_mb: Memory that one call may take.

    Raises:
        ValueError: a limit that is not positive, or an unknown ``sandbox_type``.
    """

    tool_type: ClassVar[str] = "python_code"
    call_names: tuple[str, ...] = CALL_NAMES

    def __init__(
        self,
        timeout: float = 5,
        sandbox_type: str = "none",
        keep_error_last_line: bool = False,
        sandbox: Sandbox | None = None,
        max_output_chars: int = 16_000,
        memory_mb: int = 1024,
    ) -> None:
        super().__init__()
        if sandbox_type not in _GEM_SANDBOXES:
            raise ValueError(f"sandbox_type must be one of {', '.join(_GEM_SANDBOXES)}, got {sandbox_type!r}")
        for name, value in (("timeout", timeout), ("max_output_chars", max_output_chars), ("memory_mb", memory_mb)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        level = _GEM_SANDBOXES[sandbox_type]
        if sandbox is None and level is not None:
            sandbox = Sandbox(require_level=level)
        self.timeout = timeout
        self.keep_error_last_line = keep_error_last_line
        self.max_output_chars = int(max_output_chars)
        self.memory_mb = int(memory_mb)
        self._sandbox = sandbox

    def instruction_string(self) -> str:
        return (
            "You can run Python code while you work on this. Put a complete program, with its imports and with print() "
            "for what you want to see, between <python> and </python> or into a ```python block; its output follows as "
            '"Code execution result: ". Nothing is kept from one program to the next. '
            "When you are done, give your final answer as \\boxed{answer}."
        )

    def find(self, action: str, start: int = 0) -> ToolCall | None:
        return find_code(action, start, self.call_names)

    def run(self, call: ToolCall) -> tuple[bool, str]:
        if call.error is not None:
            return True, f"Code execution result: {call.error}\n"
        result = self._use().run(
            call.arguments["code"],
            supply_imports=True,
            timeout=self.timeout,
            memory_bytes=self.memory_mb << 20,
            output_bytes=self.max_output_chars,
        )
        return not result.ok, f"Code execution result: {self._describe(result)}\n"

    def _use(self) -> Sandbox:
        return self._sandbox if self._sandbox is not None else default_sandbox()

    def _describe(self, result: RunResult) -> str:
        stderr = result.stderr.strip()
        if stderr and self.keep_error_last_line:
            stderr = stderr.rsplit("\n", 1)[-1]
        parts = [result.stdout.rstrip("\n"), stderr, _REASONS.get(result.verdict, "").format(tool=self)]
        if result.verdict == "error" and not stderr:
            parts.append(f"The program ended with exit code {result.exit_code}.")
        return "\n".join(part for part in parts if part.strip()).lstrip(" \n") or "(no output)"


_REASONS = {
    "timeout": "Execution timed out after {tool.timeout:g} seconds.",
    "memory": "The program was stopped: it needs more than {tool.memory_mb} MB of memory.",
    "output": "The program was stopped: it printed too much.",
    "killed": "The program was stopped.",
}

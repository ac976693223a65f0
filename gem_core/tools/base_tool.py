"""What a tool is: something that finds a call in an action and answers it with an observation."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar

#: ``(is_valid, has_error, observation, parsed_action)``, as GEM's tools return it. ``is_valid``: the action held a call
#: of this tool. ``has_error``: it could not be answered. ``parsed_action``: the action up to the end of the call.
ToolResult = tuple[bool, bool, str, str]


@dataclass(frozen=True)
class ToolCall:
    """A call found in an action."""

    #: Where the call begins and ends in the action's text.
    start: int
    end: int
    #: The tool's name as it was written; empty for a form that has none, such as ``<search>``.
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    #: Why the call cannot be run (malformed JSON, say); None for a good one.
    error: str | None = None


class BaseTool:
    """Base of all tools.

    A tool implements :meth:`instruction_string`, and either :meth:`find` and :meth:`run`, or, as GEM's tools do,
    :meth:`execute_action` alone. With the former, a wrapper with several tools picks the call that comes first in the
    text, and can run several calls of one action.
    """

    tool_type: ClassVar[str] = "base"
    #: Names by which a chat model's ``<tool_call>`` may call this tool.
    call_names: tuple[str, ...] = ()

    def __init__(self, num_workers: int = 1) -> None:
        self.num_workers = num_workers

    @property
    def name(self) -> str:
        return self.tool_type

    def instruction_string(self) -> str:
        """What the agent is told about the tool and the form of a call."""
        raise NotImplementedError(f"{type(self).__name__} does not implement instruction_string()")

    def find(self, action: str, start: int = 0) -> ToolCall | None:
        """Returns the first call of this tool at or after position ``start``, without running it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement find()")

    def run(self, call: ToolCall) -> tuple[bool, str]:
        """Runs a call and returns ``(has_error, observation)``. A failure is an observation, never an exception."""
        raise NotImplementedError(f"{type(self).__name__} does not implement run()")

    def execute_action(self, action: str) -> ToolResult:
        """Finds the first call in ``action`` and runs it; see :data:`ToolResult`."""
        call = self.find(action)
        if call is None:
            return False, True, "", ""
        has_error, observation = self.run(call)
        return True, has_error, observation, action[: call.end]

    # -- shared use -------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Counts one more user, such as a wrapper; see :meth:`detach`."""
        with _users_lock:
            self.__dict__["_users"] = self.__dict__.get("_users", 0) + 1

    def detach(self) -> None:
        """Counts one user less and closes the tool after the last, so that environments can share it."""
        with _users_lock:
            left = self.__dict__.get("_users", 0) - 1
            self.__dict__["_users"] = max(left, 0)
        if left <= 0:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_users"}  # a copy in another process has its own users

    def close(self) -> None:
        """Releases connections and processes. Safe to call twice."""


_users_lock = threading.Lock()

"""Gives tools to an environment: actions that call a tool are answered by it, all others by the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gem_core.core import Env, EnvWrapper, Info, StepTuple, reset_env
from gem_core.tools.base_tool import BaseTool, ToolCall
from gem_core.tools.tool_calls import as_text, clip, iter_chat_calls

logger = logging.getLogger(__name__)


class ToolEnvWrapper(EnvWrapper):
    """Answers tool calls itself; the environment's own turn is spent on all other actions only.

    The call that comes first in the action counts, whichever tool it is for; the rest of the action is dropped (see
    ``max_calls_per_turn``). A tool that fails or raises answers with an observation. After ``max_tool_uses`` calls the
    environment gets every action. The tools' instructions are added to the first observation.

    ``info`` of every step: ``use_tool`` (the observation is a tool's), ``tool_use_counter``, ``tool_success_counter``.
    Of a tool's step also ``parsed_action`` (the action up to the end of the last call that ran), ``tool_type``,
    ``tool_calls`` (one dict a call: ``tool_type``, ``name``, ``has_error``) and the environment's latest ``suffix``,
    whose request still stands. ``reset`` adds ``prev_ep_tool_use_counter`` and ``prev_ep_tool_success_counter``.

    Args:
        env: The environment.
        tools: The tools; shared by siblings of :meth:`spawn`, closed with the last of them.
        tool_reward: Reward of each call.
        tool_success_reward: Added for a call without error.
        max_tool_uses: Calls an episode; None = no limit.
        max_calls_per_turn: How many calls of one action are run, in order.
        max_output_chars: Longer tool output keeps its head and tail; None = no limit.
    """

    def __init__(
        self,
        env: Env,
        tools: Sequence[BaseTool],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        max_tool_uses: int | None = 10,
        max_calls_per_turn: int = 1,
        max_output_chars: int | None = 16_000,
    ) -> None:
        super().__init__(env)
        if not tools:
            raise ValueError("tools is empty; give at least one tool, or leave the wrapper out")
        for name, value, least in (
            ("max_tool_uses", max_tool_uses, 0),
            ("max_calls_per_turn", max_calls_per_turn, 1),
            ("max_output_chars", max_output_chars, 1),
        ):
            optional = value is None and name != "max_calls_per_turn"
            if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        self.tools = list(tools)
        self.tool_reward = tool_reward
        self.tool_success_reward = tool_success_reward
        self.max_tool_uses: float = float("inf") if max_tool_uses is None else max_tool_uses
        self.max_calls_per_turn = max_calls_per_turn
        self.max_output_chars = max_output_chars
        self.tool_use_counter = 0
        self.tool_success_counter = 0
        self._over = True
        self._suffix: str | None = None
        self._closed = False
        for tool in self.tools:
            if isinstance(tool, BaseTool):
                tool.attach()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        observation, info = reset_env(self.env, seed, options)
        instructions = "\n".join(tool.instruction_string() for tool in self.tools)
        if len(self.tools) > 1:
            instructions = f"Available tools:\n{instructions}"
        info = {
            **info,
            "tool_use_counter": 0,
            "prev_ep_tool_use_counter": self.tool_use_counter,
            "tool_success_counter": 0,
            "prev_ep_tool_success_counter": self.tool_success_counter,
            "use_tool": False,
        }
        self.tool_use_counter = self.tool_success_counter = 0
        self._over, self._suffix = False, info.get("suffix")
        return f"{observation}\n{instructions}", info

    def step(self, action: str) -> StepTuple:
        if self._over:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        results: list[_Result] = []
        if self.tool_use_counter < self.max_tool_uses and isinstance(action, str):
            results = self._use_tools(action)
        if not results:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._over, self._suffix = bool(terminated or truncated), info.get("suffix")
            return observation, reward, terminated, truncated, {**info, **self._counters(use_tool=False)}
        last = results[-1]
        texts = [clip(as_text(r.observation), self.max_output_chars) for r in results]
        if self.tool_use_counter >= self.max_tool_uses:
            texts[-1] += "\n\n"
            texts.append("That was the last tool call allowed. Give your final answer now.")
        successes = sum(not r.has_error for r in results)
        reward = len(results) * self.tool_reward + successes * self.tool_success_reward
        info = {
            "parsed_action": last.parsed_action,
            "tool_type": last.tool_type,
            "tool_calls": [{"tool_type": r.tool_type, "name": r.name, "has_error": r.has_error} for r in results],
            **self._counters(use_tool=True),
        }
        if self._suffix is not None:
            info["suffix"] = self._suffix
        return _join(texts), reward, False, False, info

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "tool_use_counter": self.tool_use_counter,
            "tool_success_counter": self.tool_success_counter,
            "over": self._over,
            "suffix": self._suffix,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.tool_use_counter = state["tool_use_counter"]
        self.tool_success_counter = state["tool_success_counter"]
        self._over, self._suffix = state["over"], state["suffix"]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for tool in self.tools:
                if isinstance(tool, BaseTool):
                    tool.detach()
        super().close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _counters(self, *, use_tool: bool) -> Info:
        return {
            "tool_use_counter": self.tool_use_counter,
            "tool_success_counter": self.tool_success_counter,
            "use_tool": use_tool,
        }

    def _use_tools(self, action: str) -> list[_Result]:
        """Runs the calls of one action, in order, up to the limits."""
        results: list[_Result] = []
        for result in self._run_calls(action):
            results.append(result)
            self.tool_use_counter += 1
            self.tool_success_counter += not result.has_error
            if len(results) >= self.max_calls_per_turn or self.tool_use_counter >= self.max_tool_uses:
                break
        return results

    def _run_calls(self, action: str) -> Iterator[_Result]:
        """Runs one call each time it is asked for the next."""
        position = 0
        while True:
            found = self._first_call(action, position)
            if found is None:
                break
            tool, call = found
            yield self._run(tool, call, action)
            position = max(call.end, position + 1)
        if position == 0 and (result := self._try_gem_tools(action)):
            yield result

    def _first_call(self, action: str, start: int) -> tuple[BaseTool | None, ToolCall] | None:
        """The call that begins first, with its tool; no tool where a ``<tool_call>`` names none of ours."""
        best: tuple[BaseTool | None, ToolCall] | None = None
        for tool in self.tools:
            if _finds_calls(tool):
                call = tool.find(action, start)
                if call is not None and (best is None or call.start < best[1].start):
                    best = tool, call
        if any(_finds_calls(t) and t.call_names for t in self.tools):
            limit = best[1].start if best else len(action)
            stray = next(iter_chat_calls(action, start), None)
            if stray is not None and stray.start < limit:
                best = None, stray
        return best

    def _run(self, tool: BaseTool | None, call: ToolCall, action: str) -> _Result:
        if tool is None:
            names = ", ".join(n for t in self.tools if _finds_calls(t) for n in t.call_names)
            problem = call.error or f"no tool is called {call.name!r}"
            text = f"Tool error: {problem}. Tools that can be called: {names}."
            return _Result("none", call.name, True, text, action[: call.end])
        try:
            has_error, observation = tool.run(call)
        except Exception as e:  # the agent's episode goes on whatever a tool does
            logger.warning("tool %s failed", tool.name, exc_info=True)
            has_error, observation = True, f"Tool error: {type(e).__name__}: {e}"
        return _Result(tool.tool_type, call.name or tool.name, has_error, observation, action[: call.end])

    def _try_gem_tools(self, action: str) -> _Result | None:
        """Tools with ``execute_action`` alone, in the order they were given."""
        for tool in self.tools:
            if _finds_calls(tool):
                continue
            tool_type = getattr(tool, "tool_type", type(tool).__name__)
            name = str(getattr(tool, "name", tool_type))
            try:
                valid, has_error, observation, parsed = tool.execute_action(action)
            except Exception as e:
                logger.warning("tool %s failed", name, exc_info=True)
                return _Result(tool_type, name, True, f"Tool error: {type(e).__name__}: {e}", action)
            if valid:
                return _Result(tool_type, name, bool(has_error), observation, parsed)
        return None


@dataclass(frozen=True)
class _Result:
    tool_type: str
    name: str
    has_error: bool
    observation: object
    parsed_action: str


def _finds_calls(tool: object) -> bool:
    """Whether the tool tells where its calls are (ours do; GEM's only execute them)."""
    return isinstance(tool, BaseTool) and type(tool).find is not BaseTool.find


def _join(texts: list[str]) -> str:
    """The results of several calls, each beginning on a line of its own."""
    return "".join(t if t.endswith("\n") or i == len(texts) - 1 else f"{t}\n" for i, t in enumerate(texts))

from __future__ import annotations

import json
from typing import Any

import pytest

import gem_core
from gem_core.core import Env
from gem_core.tools.base_tool import BaseTool, ToolCall
from gem_core.tools.tool_calls import find_tagged, iter_chat_calls
from gem_core.tools.tool_env_wrapper import ToolEnvWrapper
from gem_core.wrappers.wrapper_factory import get_wrapper_fns


class Echo(BaseTool):
    """Gives its argument back; some arguments make it fail."""

    tool_type = "echo"
    call_names = ("echo",)

    def __init__(self, tag: str = "echo") -> None:
        super().__init__()
        self.tag = tag
        self.runs: list[str] = []
        self.closed = 0

    def instruction_string(self) -> str:
        return f"Write <{self.tag}>text</{self.tag}> to hear it again."

    def find(self, action: str, start: int = 0) -> ToolCall | None:
        found = find_tagged(action, self.tag, start)
        best = ToolCall(found[0], found[1], arguments={"text": found[2]}) if found else None
        for call in iter_chat_calls(action, start):
            if call.name in self.call_names and (best is None or call.start < best.start):
                return call
        return best

    def run(self, call: ToolCall) -> tuple[bool, Any]:  # type: ignore[override]
        text = call.arguments["text"]
        self.runs.append(text)
        if text == "raise":
            raise OSError("the wire is cut")
        if text == "flood":
            return False, "x" * 100_000 + "end"
        if text == "binary":
            return False, b"\x00\xff"
        return text == "error", f"heard: {text}"

    def close(self) -> None:
        self.closed += 1


class GemTool:
    """A tool as it is written for GEM: ``execute_action`` and nothing of ours."""

    tool_type = "gem"
    name = "gem"

    def instruction_string(self) -> str:
        return "Write CALL."

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        at = action.find("CALL")
        if at < 0:
            return False, True, "", ""
        return True, "BAD" in action, "called", action[: at + 4]


def game(**kwargs: Any) -> tuple[ToolEnvWrapper, Echo]:
    tool = Echo()
    kwargs = {"tools": [tool], "tool_reward": 0.05, "tool_success_reward": 0.25, **kwargs}
    env = ToolEnvWrapper(gem_core.make("game:GuessTheNumber-v0", max_turns=3), **kwargs)
    return env, tool


def test_reset_adds_the_instructions_and_counters() -> None:
    env, _ = game()
    observation, info = env.reset(seed=1)
    assert observation.endswith("\nWrite <echo>text</echo> to hear it again.")
    assert (info["use_tool"], info["tool_use_counter"], info["tool_success_counter"]) == (False, 0, 0)
    env.step("<echo>a</echo>")
    env.step("<echo>error</echo>")
    _, info = env.reset(seed=1)
    assert (info["prev_ep_tool_use_counter"], info["prev_ep_tool_success_counter"]) == (2, 1)
    assert (env.tool_use_counter, env.tool_success_counter) == (0, 0)


def test_a_call_is_answered_and_costs_the_environment_no_turn() -> None:
    env, _ = game()
    env.reset(seed=1)
    for n in range(1, 6):
        observation, reward, terminated, truncated, info = env.step(f"Think. <echo>t{n}</echo> \\boxed{{1}}")
        assert observation == f"heard: t{n}"
        assert reward == pytest.approx(0.3)
        assert (terminated, truncated) == (False, False)
        assert info["parsed_action"] == f"Think. <echo>t{n}</echo>"
        assert (info["use_tool"], info["tool_type"], info["tool_use_counter"]) == (True, "echo", n)
        assert "Guess 1 of 3" in info["suffix"]
    assert env.unwrapped.turn == 0  # type: ignore[attr-defined]
    *_, info = env.step(r"\boxed{99}")
    assert env.unwrapped.turn == 1  # type: ignore[attr-defined]
    assert (info["use_tool"], info["tool_use_counter"]) == (False, 5)
    assert "parsed_action" not in info


def test_a_failing_tool_is_an_observation_without_the_success_reward() -> None:
    env, _ = game()
    env.reset(seed=1)
    observation, reward, *_, info = env.step("<echo>error</echo>")
    assert (observation, reward) == ("heard: error", pytest.approx(0.05))
    observation, reward, terminated, _truncated, info = env.step("<echo>raise</echo>")
    assert observation == "Tool error: OSError: the wire is cut"
    assert reward == pytest.approx(0.05)
    assert not terminated
    assert (info["tool_use_counter"], info["tool_success_counter"]) == (2, 0)


def test_floods_and_binary_output_become_short_text() -> None:
    env, _ = game(max_output_chars=100)
    env.reset(seed=1)
    observation = env.step("<echo>flood</echo>")[0]
    assert observation == "x" * 50 + "\n[... 99903 characters left out ...]\n" + "x" * 47 + "end"
    assert env.step("<echo>binary</echo>")[0] == "\\x00\\xff"


def test_after_the_last_use_the_environment_gets_every_action() -> None:
    env, tool = game(max_tool_uses=2)
    env.reset(seed=1)
    assert "last tool call" not in env.step("<echo>a</echo>")[0]
    assert env.step("<echo>b</echo>")[0].endswith("That was the last tool call allowed. Give your final answer now.")
    _, reward, terminated, *_ = env.step("<echo>c</echo>")
    assert (reward, terminated) == (-0.1, True)  # a guess without a box
    assert tool.runs == ["a", "b"]
    with pytest.raises(RuntimeError, match="reset"):
        env.step("<echo>d</echo>")


def test_no_use_allowed_means_no_tool() -> None:
    env, tool = game(max_tool_uses=0)
    env.reset(seed=1)
    assert env.step("<echo>a</echo>")[2] is True
    assert tool.runs == []


def test_several_calls_of_one_action_run_in_order_when_asked() -> None:
    action = (
        '<echo>a</echo> and <tool_call>{"name": "echo", "arguments": {"text": "error"}}</tool_call> <echo>c</echo>!'
    )
    env, tool = game(max_calls_per_turn=5)
    env.reset(seed=1)
    observation, reward, *_, info = env.step(action)
    assert observation == "heard: a\nheard: error\nheard: c"
    assert reward == pytest.approx(3 * 0.05 + 2 * 0.25)
    assert [c["has_error"] for c in info["tool_calls"]] == [False, True, False]
    assert info["parsed_action"] == action[:-1]
    assert (info["tool_use_counter"], info["tool_success_counter"]) == (3, 2)
    env, tool = game()
    env.reset(seed=1)
    env.step(action)
    assert tool.runs == ["a"]
    env, tool = game(max_calls_per_turn=5, max_tool_uses=2)
    env.reset(seed=1)
    env.step(action)
    assert tool.runs == ["a", "error"]


def test_the_first_call_in_the_text_counts_whichever_tool_it_is_for() -> None:
    first, second = Echo("one"), Echo("two")
    env, _ = game(tools=[first, second])
    observation, _ = env.reset(seed=1)
    assert "Available tools:\nWrite <one>" in observation
    assert env.step("<two>x</two> <one>y</one>")[0] == "heard: x"
    assert (first.runs, second.runs) == ([], ["x"])


def test_an_unknown_tool_is_told_the_known_ones() -> None:
    env, _ = game()
    env.reset(seed=1)
    observation, reward, *_, info = env.step('<tool_call>{"name": "ecco", "arguments": {}}</tool_call>')
    assert observation == "Tool error: no tool is called 'ecco'. Tools that can be called: echo."
    assert reward == pytest.approx(0.05)
    assert info["tool_success_counter"] == 0
    assert "malformed JSON" in env.step("<tool_call>{oops}</tool_call>")[0]


def test_gem_tools_work_unchanged() -> None:
    env, _ = game(tools=[GemTool()])
    env.reset(seed=1)
    observation, reward, *_, info = env.step("Now CALL it")
    assert (observation, reward, info["parsed_action"]) == ("called", pytest.approx(0.3), "Now CALL")
    assert env.step("BAD CALL")[1] == pytest.approx(0.05)
    assert env.step(r"\boxed{99}")[4]["use_tool"] is False


def test_concat_shows_the_request_after_a_tool_result() -> None:
    env: Env = game()[0]
    env = get_wrapper_fns("concat_with_action")[0](env)
    env.reset(seed=1)
    observation = env.step("<echo>a</echo> trailing")[0]
    assert "\n<echo>a</echo>\nheard: a\nGuess 1 of 3" in observation
    assert "trailing" not in observation


def test_state_round_trips_and_siblings_share_the_tools() -> None:
    env, tool = game(max_tool_uses=3)
    env.reset(seed=1)
    env.step("<echo>a</echo>")
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    assert sibling.tools[0] is tool
    for action in ("<echo>b</echo>", r"\boxed{99}", "<echo>c</echo>", r"\boxed{3}"):
        assert sibling.step(action) == env.step(action)
    env.close()
    env.close()
    assert tool.closed == 0
    sibling.close()
    assert tool.closed == 1


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [({"tools": []}, "empty"), ({"max_tool_uses": -1}, "-1"), ({"max_calls_per_turn": 0}, "0")],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        game(**kwargs)

from __future__ import annotations

import pickle
import time

import pytest

from gem_core.core import Env, Info, StepTuple
from gem_core.sandbox import Sandbox
from gem_core.tools.python_code_tool import PythonCodeTool
from gem_core.tools.tool_env_wrapper import ToolEnvWrapper


@pytest.fixture(scope="module")
def tool() -> PythonCodeTool:
    return PythonCodeTool(timeout=5)


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("Let me see. <python>print(6 * 7)</python>", "Code execution result: 42\n"),
        ("```python\nprint('a')\nprint('b')\n```", "Code execution result: a\nb\n"),
        ("<python>print(1)", "Code execution result: 1\n"),
        ("<python>print('</python>')</python>", "Code execution result: </python>\n"),
        ('<tool_call>{"name": "python", "arguments": {"code": "print(3)"}}</tool_call>', "Code execution result: 3\n"),
        ("<python>x = 1</python>", "Code execution result: (no output)\n"),
        ("<python>print(np.arange(3), sqrt(4), math.e > 2)</python>", "Code execution result: [0 1 2] 2.0 True\n"),
        ("<python>import sys; sys.stdout.buffer.write(b'\\xff\\x00A')</python>", "Code execution result: \\xff\x00A\n"),
    ],
)
def test_code_is_run(tool: PythonCodeTool, action: str, observation: str) -> None:
    assert tool.execute_action(action) == (True, False, observation, action)


def test_what_follows_the_call_is_dropped(tool: PythonCodeTool) -> None:
    _, _, observation, parsed = tool.execute_action("a <python>print(1)</python> b <python>print(2)</python>")
    assert parsed == "a <python>print(1)</python>"
    assert observation == "Code execution result: 1\n"


def test_actions_without_code_are_not_calls(tool: PythonCodeTool) -> None:
    assert tool.execute_action(r"The answer is \boxed{4}.")[:2] == (False, True)


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("print('x'); import sys; sys.exit(3)", "x\nThe program ended with exit code 3."),
        ("x = = 1", "SyntaxError"),
        ("import os; os.abort()", "The program ended with exit code -6."),
        ("bytearray(8 << 30)", "MemoryError\nThe program was stopped: it needs more than 1024 MB of memory."),
    ],
)
def test_errors_are_observations(tool: PythonCodeTool, code: str, part: str) -> None:
    valid, has_error, observation, _ = tool.execute_action(f"<python>{code}</python>")
    assert (valid, has_error) == (True, True)
    assert part in observation


def test_only_the_last_line_of_an_error_is_kept_where_asked() -> None:
    tool = PythonCodeTool(keep_error_last_line=True)
    observation = tool.execute_action("<python>print('x')\n1/0</python>")[2]
    assert observation == "Code execution result: x\nZeroDivisionError: division by zero\n"


def test_a_time_out_of_two_seconds_takes_two_seconds() -> None:
    tool = PythonCodeTool(timeout=2)
    tool.execute_action("<python>1</python>")
    started = time.monotonic()
    _, has_error, observation, _ = tool.execute_action("<python>print('a', flush=True)\nwhile True: pass</python>")
    assert 2.0 <= time.monotonic() - started < 2.4
    assert has_error
    assert observation == "Code execution result: a\nExecution timed out after 2 seconds.\n"


def test_floods_keep_head_and_tail_with_the_count_left_out() -> None:
    tool = PythonCodeTool(max_output_chars=100)
    observation = tool.execute_action("<python>print('a' * 5000 + 'z')</python>")[2]
    assert "[... 4902 bytes left out ...]" in observation
    assert observation.count("a") < 120 + 5
    assert observation.endswith("az\n")


def test_missing_imports_run_the_program_once() -> None:
    tool = PythonCodeTool()
    code = "import os\nopen('n', 'a').write('x')\nprint(Counter(open('n').read())['x'])\nprint(undefined)"
    _, has_error, observation, _ = tool.execute_action(f"<python>{code}</python>")
    assert has_error
    assert observation.startswith("Code execution result: 1\n")
    assert "NameError: name 'undefined' is not defined" in observation


def test_a_malformed_chat_call_is_an_error(tool: PythonCodeTool) -> None:
    action = '<tool_call>{"name": "python", "arguments": {}}</tool_call>'
    valid, has_error, observation, _ = tool.execute_action(action)
    assert (valid, has_error) == (True, True)
    assert "one argument, code" in observation


def test_nonsense_arguments_are_refused() -> None:
    for name in ("timeout", "max_output_chars", "memory_mb"):
        with pytest.raises(ValueError, match=name):
            PythonCodeTool(**{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sandbox_type"):
        PythonCodeTool(sandbox_type="jail")


def test_copies_in_other_processes_work(tool: PythonCodeTool) -> None:
    copy = pickle.loads(pickle.dumps(PythonCodeTool(sandbox=Sandbox(preload=()))))
    assert copy.execute_action("<python>print(1)</python>")[2] == "Code execution result: 1\n"


class _Ask(Env):
    def reset(self, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[str, Info]:
        super().reset(seed)
        return "What is 6 * 7?", {}

    def step(self, action: str) -> StepTuple:
        return "", float("42" in action), True, False, {}


def test_several_calls_in_one_turn() -> None:
    env = ToolEnvWrapper(_Ask(), tools=[PythonCodeTool()], tool_success_reward=0.5, max_calls_per_turn=2)
    observation, _ = env.reset(seed=1)
    assert "<python>" in observation
    observation, reward, *_, info = env.step("<python>print(1)</python> and <python>print(2)</python>")
    assert observation == "Code execution result: 1\nCode execution result: 2\n"
    assert reward == 1.0
    assert len(info["tool_calls"]) == 2
    assert env.step("42")[1:3] == (1.0, True)
    env.close()

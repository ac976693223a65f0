from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.tools.code_blocks import find_code


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("Hm. <python>print(1)</python> so", "print(1)"),
        ("<python>\n    x = 1\n    print(x)\n</python>", "x = 1\nprint(x)"),
        ("```python\nprint(1)\n```\nand ```python\nprint(2)\n```", "print(1)"),
        ("```py\nprint(1)```", "print(1)"),
        ("```\npython\nprint(1)\n```", "print(1)"),
        ("```Python3 title\nprint(1)\n```", "print(1)"),
        ("````python\ns = '```'\n````", "s = '```'"),
        ("```python\ns = '''\n```\n'''\nprint(s)\n```", "s = '''\n```\n'''\nprint(s)"),
        ("<python>print('</python>')</python> end", "print('</python>')"),
        ("```python\na\n```\n<python>b</python>", "a"),
        ("<python>b</python>\n```python\na\n```", "b"),
        ("<python>print(1)", "print(1)"),
        ("```python\nfor i in range(3):\n    print(i)", "for i in range(3):\n    print(i)"),
        ("<python>print('\\\\boxed{3}')", "print('\\\\boxed{3}')"),
        ("<python>this is no code</python>", "this is no code"),
        ('<tool_call>{"name": "python", "arguments": {"code": "print(1)\\n"}}</tool_call>', "print(1)"),
        (
            "<tool_call><function=code_interpreter><parameter=code>\nprint(1)\n</parameter></function></tool_call>",
            "print(1)",
        ),
    ],
)
def test_code_is_found(action: str, code: str) -> None:
    call = find_code(action)
    assert call is not None
    assert call.error is None
    assert call.arguments["code"] == code


@pytest.mark.parametrize(
    "action",
    [
        *("", "no code", "```\nprint(1)\n```", "```json\n{}\n```", "```pyramid\nx\n```", "</python>"),
        r"I will not use <python> here: \boxed{4}",
        '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>',
    ],
)
def test_what_is_no_python_is_left_alone(action: str) -> None:
    assert find_code(action) is None


def test_the_call_ends_where_its_block_does() -> None:
    action = "a <python>1</python> b ```python\n2\n``` c"
    first = find_code(action)
    assert first is not None
    assert action[: first.end] == "a <python>1</python>"
    second = find_code(action, first.end)
    assert second is not None
    assert action[: second.end].endswith("2\n```")
    assert find_code(action, second.end) is None


def test_a_call_without_code_says_so() -> None:
    call = find_code('<tool_call>{"name": "python", "arguments": {}}</tool_call>')
    assert call is not None
    assert call.error == "the call needs one argument, code, a string"


@pytest.mark.parametrize("piece", ["<python>", "<python></python>", "```python\n", "```python\n```\n", "</python>("])
def test_a_megabyte_of_marks_is_read_in_a_second(piece: str) -> None:
    start = time.perf_counter()
    find_code(piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - start < 2.0


@given(
    st.lists(st.sampled_from(["<python>", "</python>", "```", "python\n", "x = 1\n", "'''", "(", "\x00", " "])).map(
        "".join
    )
)
def test_any_mixture_is_read_without_an_exception(action: str) -> None:
    call = find_code(action)
    if call is not None:
        assert 0 <= call.start < call.end <= len(action)
        assert isinstance(call.arguments["code"], str)

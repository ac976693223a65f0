from __future__ import annotations

from typing import Any

import pytest

from gem_core.grading.code import extract_code, grade_code, same_output, same_value

SUM = {"inputs": ["1 2\n", "3 4\n", ["5 6"]], "outputs": ["3\n", "7\n", ["11"]]}
GOOD = "print(sum(map(int, input().split())))"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```python\nfirst\n```\n```py\nsecond\n```", "second"),
        ("```python\nmine\n```\nOutput:\n```\n42\n```", "mine"),
        ("```\nplain\n```", "plain"),
        ("```json\n{}\n```", None),
        ("```python\nunclosed", "unclosed"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("<python>\nprint(1)\n</python>", "print(1)"),
        ("no code", None),
        ("```python\n```", None),
        ("", None),
    ],
)
def test_extract_code(text: str, code: str | None) -> None:
    assert extract_code(text) == code


@pytest.mark.parametrize(
    ("program", "verdict", "passed"),
    [
        (GOOD, "accepted", 3),
        (f"if __name__ == '__main__':\n    {GOOD}", "accepted", 3),
        ("print(3)", "wrong_answer", 1),
        ("print(input())", "wrong_answer", 0),
        ("1/0", "runtime_error", 0),
        ("x = = 1", "runtime_error", 0),
        ("bytearray(8 << 30)", "memory_limit", 0),
        ("", "no_code", 0),
        (None, "no_code", 0),
    ],
)
def test_verdicts(program: str | None, verdict: str, passed: int) -> None:
    result = grade_code(program, SUM, timeout=5)
    assert (result.verdict, result.passed, result.total) == (verdict, passed, 3)
    if verdict != "no_code":
        assert len(result.details) == 3


def test_details_tell_what_happened() -> None:
    wrong, error = grade_code("print(3)", SUM).details[1], grade_code("1/0", SUM).details[0]
    assert (wrong["verdict"], wrong["expected"], wrong["got"]) == ("wrong_answer", "7\n", "3\n")
    assert error["error"] == "ZeroDivisionError: division by zero"
    assert error["wall_s"] > 0


def test_the_time_limit_is_each_tests_and_two_are_enough() -> None:
    tests: dict[str, Any] = {"inputs": ["1\n"] * 20, "outputs": ["1\n"] * 20}
    result = grade_code("while True: pass", tests, timeout=0.3)
    assert (result.verdict, result.passed, result.total) == ("time_limit", 0, 20)
    verdicts = [d["verdict"] for d in result.details]
    assert 2 <= verdicts.count("time_limit") <= 4 or verdicts.count("time_limit") < 20
    assert verdicts[-1] == "skipped"
    one = grade_code(
        "import time\nif input() == '2': time.sleep(9)\nprint(1)", {**SUM, "inputs": ["1", "2", "1"]}, timeout=0.3
    )
    assert [d["verdict"] for d in one.details] == ["wrong_answer", "time_limit", "wrong_answer"]


def test_stop_early_skips_the_rest() -> None:
    result = grade_code("print(3)", SUM, stop_early=True)
    assert [d["verdict"] for d in result.details] == ["accepted", "wrong_answer", "skipped"]
    assert result.passed == 1


@pytest.mark.parametrize(
    ("program", "given", "expected", "verdict"),
    [
        ("def f(a, b):\n    return a + b", [1, 2], 3, "accepted"),
        ("def f(a, b):\n    return a + b", "1\n2", "3", "accepted"),
        ("def f(a, b):\n    return a + b", [[1], [2]], [[1, 2]], "accepted"),
        ("class Solution:\n    def f(self, xs: List[int]) -> int:\n        return max(xs)", [[3, 9]], [9], "accepted"),
        ("def f(s):\n    print('noise')\n    return s[::-1]", ["ab"], "ba", "accepted"),
        ("def f(x):\n    return {x, x + 1}", [1], [1, 2], "accepted"),
        ("def f(x):\n    return np.array([x, sqrt(4)])", [1], [1, 2], "accepted"),
        ("def f(x):\n    return (x, (x,))", [1], [1, [1]], "accepted"),
        ("def f(x):\n    return 0.1 + 0.2", [1], 0.3, "accepted"),
        ("def f(x):\n    return x == 1", [1], True, "accepted"),
        ("def f(x):\n    return 1", [1], True, "wrong_answer"),
        ("def f(x):\n    return x + 1", [1], 3, "wrong_answer"),
        ("def f(x):\n    return None", [1], 3, "wrong_answer"),
        ("def g(x):\n    return x", [1], 1, "runtime_error"),
        ("def f(x):\n    raise KeyError(x)", [1], 1, "runtime_error"),
        ("import os\ndef f(x):\n    os._exit(0)", [1], 1, "runtime_error"),
        ("def f(x):\n    return x\nif __name__ == '__main__':\n    f(input())", [1], 1, "accepted"),
    ],
)
def test_function_calls(program: str, given: Any, expected: Any, verdict: str) -> None:
    result = grade_code(program, {"fn_name": "f", "inputs": [given], "outputs": [expected]}, timeout=5)
    assert result.verdict == verdict, result.details


def test_output_is_compared_token_by_token() -> None:
    assert same_output("1  2 \n3\n\n", "1 2\n3")
    assert not same_output("1 2", "12")
    assert not same_output("0.333333", "0.3333334")
    assert same_output("0.333333", "0.3333334", tolerance=1e-6)
    assert same_output("1e3 x", "1000.0 x", tolerance=1e-9)
    assert not same_output("nan", "inf", tolerance=1e-6)
    assert not same_output("1 2", "1 2 3", tolerance=1.0)
    assert same_output("a \nb\n\n", "a\nb", exact=True)
    assert not same_output("a  b", "a b", exact=True)


def test_tolerance_comes_with_the_tests() -> None:
    tests = {"inputs": ["3"], "outputs": ["0.3333"], "tolerance": 1e-3}
    assert grade_code("print(1 / int(input()))", tests).verdict == "accepted"
    del tests["tolerance"]
    assert grade_code("print(1 / int(input()))", tests).verdict == "wrong_answer"
    with pytest.raises(ValueError, match="checker"):
        grade_code("1", {**tests, "checker": "fuzzy"})


def test_values() -> None:
    assert same_value([1, (2, 3.0)], [1, [2, 3]])
    assert same_value({"a": 1}, {"a": 1.0})
    assert not same_value({"a": 1}, {"b": 1})
    assert not same_value([1, 2], [2, 1])
    assert not same_value("1", 1)


def test_broken_tests_are_refused() -> None:
    for tests in ({}, {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": []}):
        with pytest.raises(ValueError, match="inputs and outputs"):
            grade_code(GOOD, tests)


def test_what_is_expected_is_nowhere_in_the_sandbox() -> None:
    spy = (
        "import os, sys\ninput()\nframe, found = sys._getframe(), []\n"
        "while frame:\n    found += [k for k, v in frame.f_locals.items() if str(271827 + 1) in repr(v)]\n"
        "    frame = frame.f_back\n"
        "print(found, os.listdir('.'), os.listdir('/tmp'))"
    )
    result = grade_code(spy, {"inputs": ["1"], "outputs": ["271828"]})
    assert result.details[0]["got"].startswith("[] [] [")
    assert result.verdict == "wrong_answer"

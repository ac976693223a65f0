"""The table of graded answers: no false verdict, and what the other graders said of the same answers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_core.envs.math_env import MathEnv
from gem_core.grading.math import MAX_ANSWER_LENGTH, compare, gold_answers, grade_math
from gem_core.grading.numbers import parse_number
from gem_core.grading.structure import equal_answers, parse_answer

TABLE = Path(__file__).parent / "graded_answers.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def test_the_table_is_large_and_two_sided() -> None:
    assert len(ROWS) >= 120
    assert len({(r["gold"], r["response"]) for r in ROWS}) == len(ROWS)
    assert sum(r["equal"] for r in ROWS) >= 60
    assert sum(not r["equal"] for r in ROWS) >= 40
    for row in ROWS:  # the other graders' verdicts are recorded with it; None = gave none within 10 s
        assert row["gem"] in (True, False, None)
        assert row["math_verify"] in (True, False)


def test_no_false_verdict_on_the_table() -> None:
    with ThreadPoolExecutor(4) as executor:  # off the main thread, where a signal-based limit would fail
        verdicts = list(executor.map(lambda r: grade_math(r["response"], r["gold"], timeout=1.5), ROWS))
    false = [
        (r["gold"], r["response"], v.reason) for r, v in zip(ROWS, verdicts, strict=True) if v.correct != r["equal"]
    ]
    assert false == []
    towers = [v for r, v in zip(ROWS, verdicts, strict=True) if "9^{9^{9^{9}}}" in r["response"]]
    assert [v.reason for v in towers] == ["time_limit"] * 2


def test_check_correct_as_in_gem() -> None:
    assert MathEnv.check_correct("so \\boxed{\\frac{1}{2}}", "0.5") is True
    assert MathEnv.check_correct("so \\boxed{3}", 3) is True
    assert MathEnv.check_correct("so \\boxed{3}", ["2", "3"]) is True
    assert MathEnv.check_correct("so 3", "3") is False


@pytest.mark.parametrize("gold", [None, [], "", " ", {"a": 1}, b"1", True, object()])
def test_a_reference_that_is_none_is_refused(gold: Any) -> None:
    with pytest.raises(ValueError, match="reference answer"):
        gold_answers(gold)


def test_an_endless_answer_is_not_taken_apart() -> None:
    assert compare("1" * (MAX_ANSWER_LENGTH + 1), "1").reason == "too_long"
    assert compare("x" * 100_000, "x" * 100_000).correct


@given(st.text(alphabet="0123456789.,/-+^{}()[]\\ %$=<>xyπ√½∞abc_&", max_size=60), st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken_apart_and_equals_itself(a: str, b: str) -> None:
    def leaf(gold: str, answer: str) -> bool:
        return gold == answer

    for text in (a, b, f"\\frac{{{a}}}{{{b}}}", f"\\{{{a},{b}\\}}", f"\\text{{{b}}}{a}"):
        node = parse_answer(text)
        assert equal_answers(node, parse_answer(text), leaf)
        equal_answers(node, parse_answer(a), leaf)


@given(st.fractions(max_denominator=10_000), st.booleans())
def test_numbers_are_read_exactly(value: Any, slashed: bool) -> None:
    over, under = value.numerator, value.denominator
    text = f"{over}/{under}" if slashed else f"\\frac{{{over}}}{{{under}}}"
    number = parse_number(text)
    assert number is not None
    assert number.value == value

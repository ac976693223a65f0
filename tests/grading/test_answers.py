"""Finding the final answer in a response."""

from __future__ import annotations

import time

import pytest

from gem_core.grading.answers import final_boxes, last_answer, last_boxed, last_tagged


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        (r"a \boxed{\frac{1}{2}} b", [r"\frac{1}{2}"]),
        (r"\boxed{\boxed{5}}", ["5"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"\boxed{5", []),
        (r"\boxed{3}, then \boxed{7", ["3"]),
        (r"\boxed{1} and \boxed{2}", ["1", "2"]),
        (r"$\boxed{1}$, $\boxed{2}$ or $\boxed{3}$", ["1", "2", "3"]),
        (r"\boxed{4}, that is, \boxed{4}", ["4"]),
        (r"\boxed{1}. No: \boxed{2}", ["2"]),
        (r"\boxed 5.", ["5"]),
        (r"\fbox{x}", ["x"]),
        (r"\boxed{\text{a}\boxed{b}c}", [r"\text{a}bc"]),
        (r"} } \boxed{4}", ["4"]),
        (r"\boxedx{4}", []),
        ("", []),
    ],
)
def test_boxes(text: str, boxes: list[str]) -> None:
    assert final_boxes(text) == boxes
    assert last_boxed(text) == (boxes[-1] if boxes else None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> a </answer>", "a"),
        ("<answer>a</answer> <answer>b", "a"),
        ("<answer><answer>b</answer>", "b"),
        ("<ANSWER>\\boxed{3}</ANSWER>", "3"),
        ("<answer>1</answer> so \\boxed{2}", "2"),
        ("\\boxed{2}, thus <answer>1</answer>", "1"),
        ("İ" * 50 + "\\boxed{2} <answer>1</answer>", "1"),
        ("nothing", None),
    ],
)
def test_the_last_answer_of_either_form(text: str, answer: str | None) -> None:
    assert last_answer(text) == answer


def test_tags_need_closing() -> None:
    assert last_tagged("<answer>x") is None
    assert last_tagged("</answer>x<answer>") is None


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150_000,
        "\\boxed{" * 60_000 + "x" * 300_000 + "}" * 60_000,
        "\\boxed{}" * 100_000,
        "<answer>" * 100_000,
        "\\boxed" + " " * 1_000_000,
    ],
    ids=["unclosed", "nested", "empty", "tags", "blanks"],
)
def test_a_megabyte_of_markers_is_scanned_at_once(text: str) -> None:
    start = time.monotonic()
    last_answer(text)
    final_boxes(text)
    assert time.monotonic() - start < 5  # a scan that is quadratic in them takes minutes

r"""Grades mathematical answers: is the last ``\boxed{...}`` of a response equal to the reference?

What is provably cheap (equal texts, numbers, lists and intervals of numbers, words) is decided at once. The rest goes
through math-verify in a worker process under a hard limit on time and memory (:mod:`gem_core.grading.workers`), from
any thread or process, with no signal in the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NoReturn

from gem_core.grading.answers import final_boxes
from gem_core.grading.structure import equal_answers, parse_answer
from gem_core.grading.workers import JobFailed, shared_pool

#: Seconds that one answer may take.
DEFAULT_TIMEOUT = 3.0
#: Longest answer that is taken apart; a longer one is correct only where it equals the reference as text.
MAX_ANSWER_LENGTH = 4000

_HANDLER = "gem_core.grading.math_worker:equal"


@dataclass(frozen=True)
class MathVerdict:
    """What became of one answer.

    ``reason``: ``equal``, ``different``, ``no_answer`` (no complete box), ``too_long``, ``time_limit``,
    ``memory_limit``, ``error`` (math-verify raised) or ``crashed``; all but ``equal`` count as not correct.
    """

    correct: bool
    reason: str
    #: The content of the box that was graded.
    answer: str | None = None


class _NeedsAlgebra(Exception):
    pass


def grade_math(response: str, gold: object, *, timeout: float = DEFAULT_TIMEOUT) -> MathVerdict:
    r"""Grades a response against one reference, or several of which any will do.

    Args:
        response: The model's text; its last complete ``\boxed{...}`` counts (several joined by commas, "and" or "or"
            are one list).
        gold: The reference: a string (LaTeX or plain, boxed or not), a number, or a list of these.
        timeout: Seconds for the whole answer; a worker that needs longer is ended.

    Raises:
        ValueError: ``gold`` is empty or of another type.
        ImportError: math-verify is not installed.
    """
    golds = gold_answers(gold)
    boxes = final_boxes(response)
    if not boxes or not any(boxes):
        return MathVerdict(False, "no_answer")
    verdict = compare(", ".join(boxes), golds[0], timeout=timeout)
    for other in golds[1:]:
        if verdict.correct:
            break
        verdict = compare(", ".join(boxes), other, timeout=timeout)
    return verdict


def compare(answer: str, gold: str, *, timeout: float = DEFAULT_TIMEOUT) -> MathVerdict:
    """As :func:`grade_math` for an answer without its box."""
    if answer.strip() == gold.strip():
        return MathVerdict(True, "equal", answer)
    if len(answer) > MAX_ANSWER_LENGTH:
        return MathVerdict(False, "too_long", answer[:MAX_ANSWER_LENGTH])
    try:
        same = equal_answers(parse_answer(gold), parse_answer(answer), _needs_algebra)
    except _NeedsAlgebra:
        try:
            same = bool(shared_pool(_HANDLER).run((gold, answer), timeout))
        except JobFailed as e:
            return MathVerdict(False, e.reason, answer)
        except RuntimeError as e:
            _explain(e)
    return MathVerdict(same, "equal" if same else "different", answer)


def gold_answers(gold: object) -> list[str]:
    """The references as strings, a box around them opened.

    Raises:
        ValueError: none, an empty one, or of a type that is no answer.
    """
    values = list(gold) if isinstance(gold, Iterable) and not isinstance(gold, (str, bytes, Mapping)) else [gold]
    if not values:
        raise ValueError("the reference answer is an empty list")
    out = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(
                f"a reference answer is a string or a number, got {value!r} of type {type(value).__name__}"
            )
        text = str(value)
        if "\\boxed" in text:
            text = ", ".join(final_boxes(text)) or text
        if not text.strip():
            raise ValueError(f"the reference answer is empty: {gold!r}")
        out.append(text)
    return out


def _needs_algebra(gold: str, answer: str) -> bool:
    raise _NeedsAlgebra


def _explain(error: RuntimeError) -> NoReturn:
    if find_spec("math_verify") is None:
        raise ImportError(
            "grading this answer needs the package 'math_verify': pip install 'gem-adapters[math]'", name="math_verify"
        ) from error
    raise error

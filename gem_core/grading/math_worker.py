"""Runs in a worker process: answers that need algebra, through math-verify."""

from __future__ import annotations

import functools
import logging
import random
from typing import Any

import sympy  # type: ignore[import-untyped,import-not-found,unused-ignore]
from latex2sympy2_extended.sets import FiniteSet  # type: ignore[import-untyped,import-not-found,unused-ignore]
from math_verify import LatexExtractionConfig, parse, verify  # type: ignore[import-untyped,import-not-found,unused-ignore]

from gem_core.grading import values
from gem_core.grading.structure import equal_answers, parse_answer

#: Random points at which two expressions are compared, and the digits used there.
POINTS, DIGITS = 4, 60
_CONFIG = [LatexExtractionConfig()]
logging.getLogger("math_verify").setLevel(logging.CRITICAL)
logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)


def equal(job: tuple[str, str]) -> bool:
    """``job``: the raw reference and the raw answer."""
    gold, answer = job
    return equal_answers(parse_answer(gold), parse_answer(answer), leaf)


def leaf(gold: str, answer: str) -> bool:
    quick = values.same(gold, answer)
    if quick is not None:
        return quick
    a, b = read(gold), read(answer)
    if a is None or b is None:
        return False
    verdict = same_values(a, b)
    if verdict is not None:
        return verdict
    return bool(verify(a, b, timeout_seconds=0))


@functools.lru_cache(maxsize=512)
def read(latex: str) -> Any:
    """The SymPy object, or None where math-verify cannot read it."""
    # The time limit of math-verify is an alarm; 0 switches it off, the worker's own ends the process.
    found = parse(f"${latex}$", _CONFIG, fallback_mode="no_fallback", parsing_timeout=0)
    return found[0] if found else None


def same_values(a: Any, b: Any) -> bool | None:
    """Compares two scalar expressions by their values at random points; None where that cannot decide.

    Two elementary expressions that agree to 40 digits at several random points are the same; one clear difference
    settles that they are not. Faster and surer than simplification, which may miss an identity. Points where a real
    expression has no real value do not count: ``2 ln x`` answers ``ln x^2``.
    """
    if not (_scalar(a) and _scalar(b)):
        return None
    imaginary = {s: sympy.I for s in a.free_symbols | b.free_symbols if s.name == "i"}
    a, b = a.subs(imaginary), b.subs(imaginary)
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    decimal = a.has(sympy.Float) or b.has(sympy.Float)
    tolerance = sympy.Float("1e-6" if decimal else "1e-40", DIGITS)
    real = bool(symbols) and not (a.has(sympy.I) or b.has(sympy.I))
    rng = random.Random(20)
    agreed = 0
    for _ in range(6 * POINTS):
        point = {s: sympy.Rational(rng.randint(-3000, 3000), 1009) for s in symbols}
        x, y = _value(a, point), _value(b, point)
        if x is None or y is None or (real and not (x.is_real and y.is_real)):
            if not symbols:
                return None
            continue
        if not decimal and x.is_Rational and y.is_Rational:
            if x != y:
                return False
        elif abs(x - y) > tolerance * max(abs(x), abs(y), sympy.Float("1e-300")):
            return False
        agreed += 1
        if not symbols or agreed == POINTS:
            return True
    return None


def _scalar(x: Any) -> bool:
    return isinstance(x, sympy.Expr) and not isinstance(x, (sympy.MatrixBase, sympy.MatrixExpr, FiniteSet))


def _value(expression: Any, point: dict[Any, Any]) -> Any:
    """A finite number, exact where it is rational, or None."""
    try:
        value = expression.subs(point).doit()
        if not value.is_Rational:
            value = value.evalf(DIGITS)
    except MemoryError:
        raise
    except Exception:
        return None
    if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return None
    return value


# The parser builds its tables at first use; forked workers inherit them.
for _warm in (
    r"\frac{\sqrt{2}}{2}+x^{2}", r"2\pi", r"\sin(x)", r"(x+1)^{3}-\log_{2}(8)", r"x=2y", r"\binom{5}{2}", "3!", "-1",
    r"\sqrt[3]{5}\cdot e^{-x}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"2x+3y-5=0",
    r"\frac{3\sqrt{3}}{4}\pi", "3+4i", r"\cos 2\theta", r"\ln(2)", r"|x|", r"a_{1}+b_{2}", "-\\frac{1}{3}x^{3}",
):  # fmt: skip
    verify(read(_warm), read(_warm + "+1"), timeout_seconds=0)

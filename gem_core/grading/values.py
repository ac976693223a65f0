r"""Compares elementary expressions by value, without building symbolic ones: a tenth of the time of a full parse.

Covers integers, letters, ``\pi``, ``e``, ``i``, sums, products, quotients, powers, ``\frac`` and ``\sqrt``. Whatever
else stands in an answer, or could be read in two ways, is left to math-verify (:func:`same` returns None).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath  # type: ignore[import-untyped,import-not-found,unused-ignore]

#: Digits of the arithmetic; points that two expressions must agree at.
DIGITS, POINTS = 60, 4
# Of the digits, those that rounding leaves alone in an expression of the greatest length.
_SURE = 50
_TOKEN = re.compile(r"\s*(\d+|\\[a-zA-Z]+|[a-zA-Z]|[-+*/^(){}\[\]])")
_GREEK = {rf"\{n}" for n in ("alpha", "beta", "gamma", "theta", "lambda", "mu", "phi", "omega")}
_MAX_LENGTH, _MAX_DEPTH = 300, 30
_MAX_EXPONENT = 10**6

Value = tuple[Any, Any]  # the value, and the largest magnitude met on the way (for what rounding may have cost)
Node = Callable[["_Point"], Value]


class _Unsupported(Exception):
    pass


class _Undefined(Exception):
    """No value here: division by zero, or no real value where real ones are asked for."""


@dataclass
class _Point:
    values: dict[str, Any]
    real: bool


def same(gold: str, answer: str) -> bool | None:
    """Whether two cleaned expressions have the same value (at random points, where letters stand in them).

    With letters and without ``i``, only points count where all that is computed is real.
    """
    try:
        first, second = _Parser(gold), _Parser(answer)
        a, b = first.whole(), second.whole()
    except _Unsupported:
        return None
    if len(first.tokens) == len(second.tokens) == 1:
        return None  # two letters: perhaps two choices
    names = sorted(first.names | second.names)
    real = bool(names) and not (first.imaginary or second.imaginary)
    rng = random.Random(20)
    agreed = 0
    with mpmath.workdps(DIGITS):
        for _ in range(6 * POINTS if names else 1):
            point = _Point({n: mpmath.mpf(rng.randint(-3000, 3000)) / 1009 for n in names}, real)
            try:
                (x, x_scale), (y, y_scale) = a(point), b(point)
            except _Undefined:
                continue
            except _Unsupported:
                return None
            noise = mpmath.mpf(10) ** -_SURE * max(x_scale, y_scale)
            if abs(x - y) > noise:
                return False
            if noise > mpmath.mpf(10) ** -20 * max(abs(x), abs(y)):
                return None  # too close to call: much cancels here
            agreed += 1
            if not names or agreed == POINTS:
                return True
    return None


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise _Unsupported
        self.tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise _Unsupported
            self.tokens.append(found[1])
            position = found.end()
        self.at = self.depth = 0
        self.names: set[str] = set()
        self.imaginary = False

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise _Unsupported
        self.at += 1
        return token

    def whole(self) -> Node:
        node = self.sum()
        if self.peek():
            raise _Unsupported
        return node

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _Unsupported
        terms: list[tuple[bool, Node]] = []
        negative = self.take() == "-" if self.peek() in ("+", "-") else False
        terms.append((negative, self.product()))
        while self.peek() in ("+", "-"):
            negative = self.take() == "-"
            terms.append((negative, self.product()))
        self.depth -= 1
        return terms[0][1] if len(terms) == 1 and not terms[0][0] else lambda p: _add(terms, p)

    def product(self) -> Node:
        factors: list[tuple[bool, Node]] = [(False, self.power())]
        divided = False
        while (token := self.peek()) and token not in ("+", "-", ")", "}", "]"):
            if token in (r"\cdot", "/"):
                self.take()
                divided |= token == "/"
                factors.append((token == "/", self.power()))
            elif (
                divided or token.isdigit() or token == "^" or (token == r"\frac" and self.tokens[self.at - 1].isdigit())
            ):
                raise _Unsupported  # 1/2x, x2 and 3\frac{1}{2} are read in more than one way
            else:
                factors.append((False, self.power()))
        return factors[0][1] if len(factors) == 1 else lambda p: _multiply(factors, p)

    def power(self) -> Node:
        base = self.atom()
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.group()
        return lambda p: _raise(base(p), exponent(p), p)

    def group(self) -> Node:
        self.take("{")
        node = self.sum()
        self.take("}")
        return node

    def atom(self) -> Node:
        token = self.take()
        if token in ("(", "{"):
            node = self.sum()
            self.take(")" if token == "(" else "}")
            return node
        if token.isdigit():
            number = mpmath.mpf(int(token))
            if number > mpmath.mpf(10) ** 40:
                raise _Unsupported
            return lambda p: (number, number)
        if token == r"\pi":
            return lambda p: (+mpmath.pi, +mpmath.pi)
        if token == "e":
            return lambda p: (+mpmath.e, +mpmath.e)
        if token == "i":
            self.imaginary = True
            return lambda p: (mpmath.mpc(0, 1), mpmath.mpf(1))
        if token == r"\frac":
            over, under = self.group(), self.group()
            return lambda p: _multiply([(False, over), (True, under)], p)
        if token == r"\sqrt":
            degree: Node | None = None
            if self.peek() == "[":
                self.take()
                degree = self.sum()
                self.take("]")
            inside = self.group()
            return lambda p: _root(inside(p), degree(p) if degree else (mpmath.mpf(2), mpmath.mpf(2)), p)
        if token in _GREEK or (len(token) == 1 and token.isalpha()):
            self.names.add(token)
            return lambda p: (p.values[token], abs(p.values[token]))
        raise _Unsupported


def _add(terms: list[tuple[bool, Node]], point: _Point) -> Value:
    total, scale = mpmath.mpf(0), mpmath.mpf(0)
    for negative, node in terms:
        value, size = node(point)
        total = total - value if negative else total + value
        scale = max(scale, size)
    return total, max(scale, abs(total))


def _multiply(factors: list[tuple[bool, Node]], point: _Point) -> Value:
    value, scale = factors[0][1](point)
    for below, node in factors[1:]:
        other, size = node(point)
        if not below:
            value, scale = value * other, scale * size
        elif abs(other) < mpmath.mpf(10) ** -30 * size:
            raise _Undefined
        else:
            value, scale = value / other, scale * size / abs(other) ** 2
    return value, max(scale, abs(value))


def _raise(base: Value, exponent: Value, point: _Point) -> Value:
    (x, x_scale), (n, n_scale) = base, exponent
    if abs(n) > _MAX_EXPONENT or abs(x) > mpmath.mpf(10) ** 1000:
        raise _Unsupported
    if x == 0 and (mpmath.im(n) or mpmath.re(n) <= 0):
        raise _Undefined
    value = _real(mpmath.power(x, n), point)
    # The relative error of the base grows by the factor n, the error of the exponent by log x.
    growth = max(1, abs(n) * x_scale / abs(x), n_scale * abs(mpmath.log(abs(x)))) if x else 1
    return value, abs(value) * growth


def _root(inside: Value, degree: Value, point: _Point) -> Value:
    if degree[0] != mpmath.floor(mpmath.re(degree[0])) or not 2 <= mpmath.re(degree[0]) <= 100:
        raise _Unsupported
    if degree[0] != 2 and mpmath.re(inside[0]) < 0:
        raise _Unsupported  # the real or the principal root
    return _raise(inside, (1 / degree[0], mpmath.mpf(1)), point)


def _real(value: Any, point: _Point) -> Any:
    if point.real and mpmath.im(value):
        raise _Undefined
    return value

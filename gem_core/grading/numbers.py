r"""Numbers as people write them, read exactly: integers, decimals, fractions, mixed numbers, percent, powers.

A strict grammar with bounds on size, so that reading never takes long; what does not fit it is not a number here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

#: Longest text that is looked at, in characters.
MAX_LENGTH = 400
#: Most bits that a power may have.
MAX_BITS = 4096

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)"
_UNSIGNED = rf"(?:{_INTEGER}(?:\.\d*)?|\.\d+)"
_SIGNED = rf"[+-]?\s?{_UNSIGNED}"
_PLAIN = re.compile(_SIGNED)
_FRACTION = re.compile(rf"([+-]?)\s?\\frac\{{\s?({_SIGNED})\s?\}}\{{\s?({_SIGNED})\s?\}}")
_SLASHED = re.compile(rf"([+-]?)\s?\(?({_UNSIGNED})\)?\s?/\s?\(?({_SIGNED})\)?")
_MIXED = re.compile(
    r"([+-]?)\s?(\d{1,9})(?:\s?\\frac\{\s?(\d{1,9})\s?\}\{\s?(\d{1,9})\s?\}|(?:\s|\s?\+\s?)(\d{1,9})\s?/\s?(\d{1,9}))"
)
_SCIENTIFIC = re.compile(rf"({_SIGNED})\s?(?:\\cdot\s?10\s?\^\s?\{{?\s?(-?\d{{1,3}})\s?\}}?|[eE]([+-]?\d{{1,3}}))")
_POWER = re.compile(r"([+-]?)\s?(\d{1,9})\s?\^\s?\{\s?(-?\d{1,4})\s?\}")
_REPEATING = re.compile(r"([+-]?)\s?(\d*)\.(\d*)\\overline\{\s?(\d+)\s?\}")


@dataclass(frozen=True)
class Number:
    value: Fraction
    #: Digits after the point where it was written as a decimal, else None (then it is exact).
    places: int | None = None
    percent: bool = False


def parse_number(text: str) -> Number | None:
    """Reads a cleaned answer (:func:`gem_core.grading.latex.clean`); None where it is no plain number."""
    if len(text) > MAX_LENGTH:
        return None
    text = text.strip()
    if text.endswith("%"):
        inner = parse_number(text[:-1])
        return Number(inner.value, inner.places, percent=True) if inner else None
    while len(text) > 2 and (text[0], text[-1]) in (("(", ")"), ("{", "}")):
        text = text[1:-1].strip()
        if "," in text:  # a pair, not a grouped number
            return None
    if _PLAIN.fullmatch(text):
        return _plain(text)
    if m := _FRACTION.fullmatch(text):
        return _quotient(m[1], m[2], m[3])
    if m := _SLASHED.fullmatch(text):
        return _quotient(m[1], m[2], m[3])
    if m := _MIXED.fullmatch(text):
        part = _quotient("", m[3] or m[5], m[4] or m[6])
        if part is None or not 0 < part.value < 1:
            return None  # 3\frac{7}{2} is a product
        value = int(m[2]) + part.value
        return Number(-value if m[1] == "-" else value)
    if m := _SCIENTIFIC.fullmatch(text):
        head = _plain(m[1])
        exponent = int(m[2] or m[3])
        places = None if head.places is None else max(head.places - exponent, 0)
        return Number(head.value * Fraction(10) ** exponent, places)
    if m := _POWER.fullmatch(text):
        base, exponent = int(m[2]), int(m[3])
        if base == 0 or base.bit_length() * abs(exponent) > MAX_BITS:
            return None
        power = Fraction(base) ** exponent
        return Number(-power if m[1] == "-" else power)
    if m := _REPEATING.fullmatch(text):
        start, cycle = m[3], m[4]
        value = Fraction(int(m[2] or "0")) + Fraction(int(start or "0"), 10 ** len(start))
        value += Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(start))
        return Number(-value if m[1] == "-" else value)
    return None


def _plain(text: str) -> Number:
    text = text.replace(",", "").replace(" ", "")
    if "." not in text:
        return Number(Fraction(int(text)))
    whole, _, decimals = text.partition(".")
    sign = -1 if whole.startswith("-") else 1
    value = Fraction(int((whole.lstrip("+-") or "0") + decimals), 10 ** len(decimals))
    return Number(sign * value, len(decimals))


def _quotient(sign: str, over: str, under: str) -> Number | None:
    a, b = _plain(over), _plain(under)
    if b.value == 0:
        return None
    value = a.value / b.value
    exact = a.places is None and b.places is None
    return Number(-value if sign == "-" else value, None if exact else max(a.places or 0, b.places or 0))


def equal(gold: Number, answer: Number) -> bool:
    """True where both are the same number.

    Exact numbers must be equal. A decimal may be the other rounded or cut off: within one millionth of its value, or
    to all of its digits where it has six or more after the point and four that count. A percentage equals its number
    and its hundredth (``50%``, ``50``, ``0.5``): questions that ask for per cent are answered either way.
    """
    if gold.percent == answer.percent:
        return _close(gold, answer)
    plain, percent = (answer, gold) if gold.percent else (gold, answer)
    hundredth = Number(percent.value / 100, None if percent.places is None else percent.places + 2)
    return _close(plain, percent) or _close(plain, hundredth)


def _close(a: Number, b: Number) -> bool:
    if a.value == b.value:
        return True
    if a.places is None and b.places is None:
        return False
    difference = abs(a.value - b.value)
    if difference * 1_000_000 <= max(abs(a.value), abs(b.value)):
        return True
    for decimal, other in ((a, b), (b, a)):
        if decimal.places is not None and decimal.places >= 6 and other.places is None:
            unit = Fraction(1, 10**decimal.places)
            if difference <= unit / 2 and abs(decimal.value) >= 1000 * unit:
                return True
    return False

"""Grades short answers: exact match and F1 over tokens, with SQuAD's normalisation extended to Unicode.

SQuAD's evaluation script (Rajpurkar et al. 2016) lower-cases, drops ASCII punctuation and the articles *a*, *an*,
*the*, and collapses blanks. Here also: compatibility forms are unified (NFKC), case is folded, punctuation of every
script is dropped, and accents on Latin letters do not count.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
# Scripts that put no blanks between words: each character is a token.
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKENS = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")


@dataclass(frozen=True)
class QaVerdict:
    """``exact``: equal to one of the references after normalisation; ``f1``: the best token F1 over them."""

    exact: bool
    f1: float
    #: The reference that gave the best F1.
    gold: str


def grade_qa(answer: str, gold: object) -> QaVerdict:
    """Grades an answer against one reference or several of which any will do.

    Raises:
        ValueError: ``gold`` is an empty list or of another type.
    """
    golds = gold_strings(gold)
    scores = [f1_score(answer, g) for g in golds]
    best = max(range(len(golds)), key=scores.__getitem__)
    return QaVerdict(exact_match(answer, golds), scores[best], golds[best])


def exact_match(answer: str, gold: object) -> bool:
    """Equal to one of the references after :func:`normalize`."""
    normalized = normalize(answer)
    return any(normalize(g) == normalized for g in gold_strings(gold))


def f1_score(answer: str, gold: str) -> float:
    """F1 of the bags of normalised tokens, in [0, 1]; two empty ones give 1."""
    a, b = tokens(answer), tokens(gold)
    if not a or not b:
        return float(a == b)
    common = sum((Counter(a) & Counter(b)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(a), common / len(b)
    return 2 * precision * recall / (precision + recall)


def normalize(text: str) -> str:
    """The form in which answers are compared."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if not text.isascii():
        text = _without_accents(text)
    text = "".join(c for c in text if c not in _ASCII_PUNCTUATION and (c < "\x80" or unicodedata.category(c)[0] != "P"))
    return " ".join(_ARTICLES.sub(" ", text).split())


def tokens(text: str) -> list[str]:
    """The normalised words; single characters where a script writes no blanks."""
    return _TOKENS.findall(normalize(text))


def gold_strings(gold: object) -> list[str]:
    """The references as strings.

    Raises:
        ValueError: no reference, or one that is neither a string nor a number.
    """
    values = list(gold) if isinstance(gold, Iterable) and not isinstance(gold, (str, bytes, Mapping)) else [gold]
    if not values:
        raise ValueError("the reference answer is an empty list")
    for value in values:
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"a reference answer is a string or a number, got {value!r}")
    return [str(v) for v in values]


def _without_accents(text: str) -> str:
    out: list[str] = []
    latin = False
    for c in unicodedata.normalize("NFD", text):
        if latin and "\u0300" <= c <= "\u036f":
            continue
        if not unicodedata.combining(c):
            latin = "a" <= c <= "z"
        out.append(c)
    return unicodedata.normalize("NFC", "".join(out))

r"""The shape of a mathematical answer: lists, sets, tuples, intervals, unions, inequalities, assignments, units.

:func:`equal_answers` walks two answers side by side and asks a ``leaf`` function about the expressions inside, so the
same code runs with a cheap leaf (numbers only) and with a symbolic one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gem_core.grading import numbers
from gem_core.grading.latex import TEXT_CLOSE, TEXT_OPEN, clean, compact, matching, split_top, strip_marks
from gem_core.grading.units import same_unit, split_unit

#: Decides whether two expressions without outer structure are equal; both are cleaned LaTeX.
Leaf = Callable[[str, str], bool]

#: Most elements of a list that are compared one by one.
MAX_ELEMENTS = 64
#: Deepest nesting that is taken apart.
MAX_DEPTH = 8

Kind = Literal["leaf", "text", "list", "set", "tuple", "union", "interval"]

_WORDS = re.compile(rf"{TEXT_OPEN}[^{TEXT_CLOSE}]*{TEXT_CLOSE}")
_AND_OR = re.compile(rf"{TEXT_OPEN}\s*,?\s*(?:and|or)\s*,?\s*{TEXT_CLOSE}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])|;")
_NAME = (
    r"(?:[A-Za-z]{1,3}|\\(?!sum|prod|int|lim|log|min|max)[a-z]+)(?:_(?:\{\w{1,3}\}|\w))?'?"
    r"(?:\s?\(\s?(?:[a-z]|\\[a-z]+)\s?\))?"
)
_ASSIGNMENT = re.compile(
    rf"\s*({_NAME}|{TEXT_OPEN}[^{TEXT_CLOSE}]*{TEXT_CLOSE})\s*(?:=|\\in(?![a-zA-Z])|\\approx(?![a-zA-Z]))\s*(.+)",
    re.DOTALL,
)
_TUPLE_OF_NAMES = re.compile(r"\s*\(\s*[a-z](?:\s*,\s*[a-z])+\s*\)\s*=\s*(?=\()")
_RELATION = re.compile(r"\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|<|>")
_VARIABLE = re.compile(r"[a-zA-Z](?:_\{?\w\}?)?|\\(?:theta|alpha|beta|lambda|phi)")
_OTHER_RELATION = re.compile(r"=|\\ne(?![a-zA-Z])|\\in(?![a-zA-Z])|\\equiv")
_PLAIN_WORDS = re.compile(r"[a-zA-Z][a-zA-Z' .,-]*")
_WORD = re.compile(r"[a-zA-Z]{4,}")
_PUNCTUATION = re.compile(r"[.,;:!?\"']+")
_NO_SOLUTION = ("no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set")
_REALS = {r"\mathbb{R}", "all real numbers", "all reals"}
_EMPTY = {"\\emptyset", "\\{\\}", *_NO_SOLUTION}


@dataclass(frozen=True)
class Answer:
    """A node of the tree. ``items`` are the elements; ``text`` the expression or the words of a leaf."""

    kind: Kind
    text: str
    items: tuple[Answer, ...] = ()
    #: ``"("`` or ``"["`` and ``")"`` or ``"]"`` of a tuple or interval.
    brackets: str = ""
    #: The left side of ``x = ...``, the variable of an inequality.
    name: str = ""
    unit: str = ""


def parse_answer(text: str) -> Answer:
    """Takes a raw answer apart."""
    return _parse(clean(text), 0)


def equal_answers(gold: Answer, answer: Answer, leaf: Leaf) -> bool:
    """True where the two answers mean the same; may raise whatever ``leaf`` raises."""
    renamed = bool(gold.name and answer.name and gold.name != answer.name)
    if (
        gold.text
        and not renamed
        and gold.text == answer.text
        and gold.kind == answer.kind
        and gold.brackets == answer.brackets
    ):
        return same_unit(gold.unit, answer.unit)
    if _is_empty_set(gold) or _is_empty_set(answer):
        return _is_empty_set(gold) and _is_empty_set(answer)
    if gold.kind == "text" or answer.kind == "text":
        return _equal_text(gold, answer)
    if gold.kind == "leaf" and answer.kind == "leaf":
        return _equal_leaves(gold, answer, leaf)
    if gold.kind == answer.kind == "union" or {gold.kind, answer.kind} == {"union", "list"}:
        return _same_members(gold.items, answer.items, leaf)
    if "interval" in (gold.kind, answer.kind):  # an inequality: (1, 2) is then an interval too
        both = gold.kind in ("interval", "tuple") and answer.kind in ("interval", "tuple")
        if not both or len(gold.items) != len(answer.items) or gold.brackets != answer.brackets:
            return False
        if gold.name and answer.name and gold.name != answer.name:
            return False
        return all(equal_answers(g, a, leaf) for g, a in zip(gold.items, answer.items, strict=True))
    if "tuple" in (gold.kind, answer.kind):
        return _equal_ordered(gold, answer, leaf)
    if "union" in (gold.kind, answer.kind):
        return False
    return _same_members(_members(gold), _members(answer), leaf, distinct="set" in (gold.kind, answer.kind))


# -- comparing ----------------------------------------------------------------------------------------------------


def _equal_leaves(gold: Answer, answer: Answer, leaf: Leaf) -> bool:
    if not same_unit(gold.unit, answer.unit):
        return False
    if gold.name and answer.name and gold.name != answer.name:
        return leaf(_whole(gold), _whole(answer))
    a, b = numbers.parse_number(gold.text), numbers.parse_number(answer.text)
    if a is not None and b is not None:
        return numbers.equal(a, b)
    if compact(gold.text) == compact(answer.text):
        return True
    if gold.name and answer.name:  # y = 2x and 2x = y, or the same right sides
        return leaf(gold.text, answer.text) or leaf(_whole(gold), _whole(answer))
    if "=" in gold.text or "=" in answer.text:
        return leaf(_whole(gold), _whole(answer))
    return leaf(gold.text, answer.text)


def _whole(node: Answer) -> str:
    return f"{node.name}={node.text}" if node.name else node.text


def _equal_ordered(gold: Answer, answer: Answer, leaf: Leaf) -> bool:
    """Tuples and closed or half-open intervals; a bare list counts as a tuple (``3, 4`` for ``(3, 4)``)."""
    if gold.kind == "set" or answer.kind == "set" or gold.kind == "leaf" or answer.kind == "leaf":
        return False
    if gold.kind == answer.kind and gold.brackets != answer.brackets:
        return False
    if gold.kind != answer.kind and "()" not in (gold.brackets, answer.brackets):
        return False
    if len(gold.items) != len(answer.items):
        return False
    return all(equal_answers(g, a, leaf) for g, a in zip(gold.items, answer.items, strict=True))


def _members(node: Answer) -> tuple[Answer, ...]:
    return node.items if node.kind in ("list", "set", "union") else (node,)


def _same_members(gold: tuple[Answer, ...], answer: tuple[Answer, ...], leaf: Leaf, distinct: bool = False) -> bool:
    """Equal as multisets, or as sets where ``distinct``."""
    if max(len(gold), len(answer)) > MAX_ELEMENTS:
        return False
    if distinct:
        gold, answer = _unique(gold), _unique(answer)
    if len(gold) != len(answer):
        return False
    left = list(answer)
    # Equal texts first: they need no leaf.
    hard = []
    for g in gold:
        twin = next((i for i, a in enumerate(left) if a == g), None)
        if twin is None:
            hard.append(g)
        else:
            del left[twin]
    for g in hard:
        twin = next((i for i, a in enumerate(left) if equal_answers(g, a, leaf)), None)
        if twin is None:
            return False
        del left[twin]
    return True


def _unique(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    return tuple({_key(i): i for i in items}.values())


def _key(node: Answer) -> object:
    number = numbers.parse_number(node.text) if node.kind == "leaf" else None
    return number.value if number is not None and not number.percent else node


def _is_empty_set(node: Answer) -> bool:
    return node.kind in ("leaf", "text", "set") and not node.items and node.text.casefold() in _EMPTY


def _equal_text(gold: Answer, answer: Answer) -> bool:
    return (
        gold.kind in ("text", "leaf") and answer.kind in ("text", "leaf") and _spoken(gold.text) == _spoken(answer.text)
    )


def _spoken(text: str) -> str:
    text = _PUNCTUATION.sub("", strip_marks(text)).casefold().strip()
    while len(text) > 2 and text[0] == "(" and text[-1] == ")":
        text = text[1:-1].strip()
    return " ".join(text.replace("-", " ").split())


# -- parsing ------------------------------------------------------------------------------------------------------


def _parse(text: str, depth: int) -> Answer:
    if depth > MAX_DEPTH:
        return Answer("leaf", strip_marks(text))
    if numbers.parse_number(text) is not None:
        return Answer("leaf", text)
    if strip_marks(text) in _REALS:
        text = r"(-\infty,\infty)"
    unwrapped = _unwrap(text)
    if unwrapped != text:
        return _parse(unwrapped, depth + 1)
    if "\\begin" in text:
        return _assignment(text, depth) or Answer("leaf", strip_marks(text))
    text = _TUPLE_OF_NAMES.sub("", text, count=1)
    if (node := _bracketed(text, depth)) is not None:
        return node
    listed = _AND_OR.sub(",", text)
    if "\\cup" in listed and len(parts := [p.strip() for p in re.split(r"\\cup(?![a-zA-Z])", listed)]) <= MAX_ELEMENTS:
        named = _ASSIGNMENT.match(parts[0])
        parts[0] = named[2] if named else parts[0]
        nodes = [_parse(p, depth + 1) for p in parts]
        if all(n.kind == "set" for n in nodes):  # {1,2} \cup {3}
            return Answer("set", "", tuple(i for n in nodes for i in n.items))
        return Answer("union", "", tuple(nodes))
    parts = [p for p in split_top(listed, ",") if p]
    if len(parts) > 1 and not _sentence(text):
        return _list(parts, depth)
    if (words := _text(text)) is not None:
        return words
    if r"\pm" in text or r"\mp" in text:
        return _list([text], depth)
    return _inequality(text, depth) or _assignment(text, depth) or _leaf(text)


def _unwrap(text: str) -> str:
    """Drops brackets around a single thing: ``{5}``, ``(5)``, not ``(1, 2)``."""
    for opening, closing in ("{}", "()"):
        if text.startswith(opening) and matching(text, 0, opening, closing) == len(text):
            inner = text[1:-1].strip()
            if opening == "{" or (inner and len(split_top(inner, ",")) == 1 and not _RELATION.search(inner)):
                return inner
    return text


def _bracketed(text: str, depth: int) -> Answer | None:
    if text.startswith("\\{") and text.endswith("\\}") and "\\}" not in text[2:-2]:
        inner = text[2:-2].strip()
        if "|" in inner or "\\mid" in inner or ":" in inner:  # set-builder: {x | x > 2}
            condition = re.split(r"\||\\mid(?![a-zA-Z])|:", inner, maxsplit=1)[1]
            return _inequality(condition.strip(), depth) or Answer("leaf", strip_marks(text))
        items = tuple(_parse(p, depth + 1) for p in split_top(_AND_OR.sub(",", inner), ",") if p)
        return Answer("set", "" if items else "\\{\\}", tuple(_flat(items)))
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and _one_bracket(text):
        parts = [p for p in split_top(text[1:-1], ",") if p]
        if len(parts) > 1:
            items = tuple(_parse(p, depth + 1) for p in parts)
            return Answer("tuple", "", items, brackets=text[0] + text[-1])
    return None


def _one_bracket(text: str) -> bool:
    """The first bracket closes at the last character, whichever shapes they have."""
    depth = 0
    for i, c in enumerate(text):
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
            if depth == 0:
                return i == len(text) - 1
    return False


def _list(parts: list[str], depth: int) -> Answer:
    expanded: list[str] = []
    for part in parts[: MAX_ELEMENTS + 1]:
        if r"\pm" in part or r"\mp" in part:
            for plus, minus in ("+-", "-+"):
                signed = re.sub(r"\\mp(?![a-zA-Z])\s*", minus, re.sub(r"\\pm(?![a-zA-Z])\s*", plus, part))
                expanded.append(re.sub(r"^\s*\+|(?<=[=(,])\s*\+", "", signed))
        else:
            expanded.append(part)
    nodes = [_parse(p, depth + 1) for p in expanded]
    names = {n.name for n in nodes if n.kind == "leaf" and n.name}
    if len(names) == 1:  # x = 1, x = 2 (or x = 1, 2): the roots of one unknown
        nodes = [Answer(n.kind, n.text, n.items, n.brackets, "", n.unit) for n in nodes]
    return Answer("list", "", tuple(_flat(nodes)))


def _flat(nodes: tuple[Answer, ...] | list[Answer]) -> list[Answer]:
    return [inner for n in nodes for inner in (n.items if n.kind == "list" else (n,))]


def _sentence(text: str) -> bool:
    """One run of words with commas in it, not a list of choices like ``\\text{A, B}``."""
    return _WORDS.fullmatch(text) is not None and any(len(p) > 2 for p in strip_marks(text).split(","))


def _text(text: str) -> Answer | None:
    """Words rather than mathematics."""
    bare = _WORDS.sub("", text).strip(" ()")
    if TEXT_OPEN in text and not bare:
        return Answer("text", _spoken(text))
    plain = strip_marks(text)
    if _PLAIN_WORDS.fullmatch(plain.strip("()")) and (_WORD.search(plain) or plain.casefold() in ("yes", "no")):
        return Answer("text", _spoken(plain))
    return None


def _inequality(text: str, depth: int) -> Answer | None:
    r"""``a < x \le b`` and ``x > a`` as intervals; None where it is something else."""
    signs = _RELATION.findall(text)
    if not 1 <= len(signs) <= 2 or _OTHER_RELATION.search(text):
        return None
    sides = [strip_marks(s) for s in _RELATION.split(text)]
    upward = [s in ("<", r"\le") for s in signs]
    if len(sides) == 3:
        if upward[0] != upward[1] or not _VARIABLE.fullmatch(sides[1]):
            return None
        low, name, high = sides
        closed = ["e" in s for s in signs]
        if not upward[0]:
            low, high, closed = high, low, closed[::-1]
    elif _VARIABLE.fullmatch(sides[0]) and not _VARIABLE.fullmatch(sides[1]):
        name, bound, is_closed = sides[0], sides[1], "e" in signs[0]
        low, high, closed = (
            (r"-\infty", bound, [False, is_closed]) if upward[0] else (bound, r"\infty", [is_closed, False])
        )
    elif _VARIABLE.fullmatch(sides[1]) and not _VARIABLE.fullmatch(sides[0]):
        name, bound, is_closed = sides[1], sides[0], "e" in signs[0]
        low, high, closed = (
            (bound, r"\infty", [is_closed, False]) if upward[0] else (r"-\infty", bound, [False, is_closed])
        )
    else:
        return None
    brackets = ("[" if closed[0] else "(") + ("]" if closed[1] else ")")
    return Answer("interval", "", (_parse(low, depth + 1), _parse(high, depth + 1)), brackets, name)


def _assignment(text: str, depth: int) -> Answer | None:
    r"""``x = 5``, ``f(x) = ...``, ``\text{Area} = 6 \text{ cm}^2``; ``a = b = 5`` counts as ``a = 5``."""
    found = _ASSIGNMENT.match(text)
    if found is None:
        return None
    sides = split_top(found[2], "=")
    node = _parse(sides[-1].strip(), depth + 1)
    if node.kind in ("tuple", "set", "union", "list", "interval") or node.name:
        return node
    name = "" if TEXT_OPEN in found[1] else re.sub(r"\s", "", found[1])
    return Answer(node.kind, node.text, node.items, node.brackets, name, node.unit)


def _leaf(text: str) -> Answer:
    value, unit = split_unit(text)
    return Answer("leaf", strip_marks(value), unit=unit)

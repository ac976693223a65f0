r"""Finds the final answer in a model's text: ``\boxed{...}`` or ``<answer>...</answer>``.

Both scans are linear in the text, also on hostile input (a megabyte of unclosed boxes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"\\boxed(?![a-zA-Z])|\\fbox(?![a-zA-Z])|\\.|\{|\}", re.DOTALL)
_BARE = re.compile(r"[ \t]*(-?\d[\d.,/]*\d|-?\d|[a-zA-Z])")
_BETWEEN_BOXES = re.compile(r"(?:[\s,;$]|\\[()\[\]]|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b|&)*")
_ANSWER_TAG = re.compile(r"<answer>|</answer>", re.IGNORECASE)


@dataclass(frozen=True)
class Box:
    """One ``\\boxed{...}``: ``text[start:end]`` is the whole of it."""

    start: int
    end: int
    content: str


def find_boxes(text: str) -> list[Box]:
    r"""Every complete outermost ``\boxed{...}`` (also ``\fbox{...}`` and ``\boxed 5``), in order.

    Braces nest; ``\{`` and ``\}`` are text. A box inside a box is replaced by its content. A box that never closes is
    left out, but complete ones inside it count.
    """
    spans: list[tuple[int, int, int, int]] = []  # box start and end, content start and end
    open_braces: list[tuple[int, int]] = []  # where the box and its content start; (-1, 0) for other braces
    position = 0
    while (token := _TOKEN.search(text, position)) is not None:
        position = token.end()
        word = token.group()
        if word in ("\\boxed", "\\fbox"):
            brace = position
            while brace < len(text) and text[brace].isspace():
                brace += 1
            if text.startswith("{", brace):
                position = brace + 1
                open_braces.append((token.start(), position))
            elif (bare := _BARE.match(text, position)) is not None:
                spans.append((token.start(), bare.end(), *bare.span(1)))
                position = bare.end()
        elif word == "{":
            open_braces.append((-1, 0))
        elif word == "}" and open_braces:
            start, inside = open_braces.pop()
            if start >= 0:
                while spans and spans[-1][0] > start:
                    spans.pop()  # inside this one
                spans.append((start, position, inside, position - 1))
    return [Box(start, end, _unwrap(text[a:b])) for start, end, a, b in spans]


def _unwrap(content: str) -> str:
    """Drops the box commands inside a box, keeping what they hold."""
    if "\\boxed" not in content and "\\fbox" not in content:
        return content
    pieces: list[str] = []
    open_braces: list[bool] = []
    position = 0
    while (token := _TOKEN.search(content, position)) is not None:
        pieces.append(content[position : token.start()])
        position = token.end()
        word = token.group()
        if word in ("\\boxed", "\\fbox"):
            brace = position
            while brace < len(content) and content[brace].isspace():
                brace += 1
            if content.startswith("{", brace):
                open_braces.append(True)
                position = brace + 1
            continue
        if word == "{":
            open_braces.append(False)
        elif word == "}" and open_braces and open_braces.pop():
            continue
        pieces.append(word)
    pieces.append(content[position:])
    return "".join(pieces)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{...}``, or None."""
    boxes = find_boxes(text)
    return boxes[-1].content.strip() if boxes else None


def final_boxes(text: str) -> list[str]:
    r"""The contents of the last box and of those joined to it.

    ``\boxed{1} and \boxed{2}`` is one answer of two parts: boxes with nothing but commas, ``and`` or ``or`` between
    them belong together. A part that repeats is given once.
    """
    boxes = find_boxes(text)
    if not boxes:
        return []
    group = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = text[box.end : group[0].start]
        if len(gap) > 80 or not gap.strip() or not _BETWEEN_BOXES.fullmatch(gap):
            break
        group.insert(0, box)
    return list(dict.fromkeys(b.content.strip() for b in group))


def last_tagged(text: str) -> str | None:
    """The text between the last ``<answer>`` that is closed and its ``</answer>``, stripped, or None."""
    span = _last_tag_span(text)
    return text[span[0] : span[1]].strip() if span else None


def _last_tag_span(text: str) -> tuple[int, int] | None:
    opened, found = -1, None
    for tag in _ANSWER_TAG.finditer(text):
        if tag.group().startswith("</"):
            if opened >= 0:
                found = (opened, tag.start())
                opened = -1
        else:
            opened = tag.end()
    return found


def last_answer(text: str) -> str | None:
    r"""Whichever stands last: a complete ``\boxed{...}`` or ``<answer>...</answer>``; a box inside the tags is opened.

    Returns:
        None where there is neither.
    """
    span = _last_tag_span(text)
    boxes = find_boxes(text)
    if span is None:
        return boxes[-1].content.strip() if boxes else None
    if boxes and boxes[-1].start > span[1]:
        return boxes[-1].content.strip()
    inside = last_boxed(text[span[0] : span[1]])
    return text[span[0] : span[1]].strip() if inside is None else inside

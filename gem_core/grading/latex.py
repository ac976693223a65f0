r"""Brings a written mathematical answer into one plain form: LaTeX without layout, Unicode and dollar signs.

Everything here is linear or near-linear text work with no evaluation, so it is safe on any input.
"""

from __future__ import annotations

import re
import unicodedata

#: Mark where ``\text{...}`` began and ended, so that later steps can tell words from products of letters.
TEXT_OPEN, TEXT_CLOSE = "\x02", "\x03"

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼½¾⅐-⅞↉]")
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ", "°": r"\degree ",
    "≈": r"\approx ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ",
    "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "‰": r"\permil ", "′": "'", "’": "'",
}  # fmt: skip
_SYMBOL = re.compile("[" + "".join(_SYMBOLS) + "]")

#: Commands that only move ink.
_LAYOUT = re.compile(
    r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|Biggl?|Biggr|displaystyle|textstyle|limits|nolimits|boldmath)"
    r"(?![a-zA-Z])\.?|(?<!\\)\\[,!;:>\s]|~|\\(?:quad|qquad|hfill|phantom\{\}|enspace|thinspace|,)(?![a-zA-Z])"
)
_SPACING_IN_NUMBER = re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!|\\ |~)+,?(?=\d{3}(?!\d))|(?<=\d),\\!\s*(?=\d{3}(?!\d))")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mbox|hbox|mathrm|mathbf|mathit|mathsf|bf|rm|operatorname"
    r"|boldsymbol|bm|emph|underline)\*?\s*\{"
)
_SYNONYMS = [
    (re.compile(r"\\(?:dfrac|tfrac|cfrac)(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:leq|leqslant)(?![a-zA-Z])"), r"\\le"),
    (re.compile(r"\\(?:geq|geqslant)(?![a-zA-Z])"), r"\\ge"),
    (re.compile(r"\\neq(?![a-zA-Z])"), r"\\ne"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:varnothing|O)(?![a-zA-Z])"), r"\\emptyset"),
    (re.compile(r"\\(?:lbrace)(?![a-zA-Z])\s*"), r"\\{"),
    (re.compile(r"\\(?:rbrace)(?![a-zA-Z])\s*"), r"\\}"),
    (re.compile(r"\\(?:lbrack)(?![a-zA-Z])\s*"), "["),
    (re.compile(r"\\(?:rbrack)(?![a-zA-Z])\s*"), "]"),
    (re.compile(r"\\(?:times|ast)(?![a-zA-Z])"), r"\\cdot"),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\varepsilon(?![a-zA-Z])"), r"\\epsilon"),
    (re.compile(r"\\varphi(?![a-zA-Z])"), r"\\phi"),
    (re.compile(r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree(?![a-zA-Z])"), r"\\degree "),
    (re.compile(r"\\begin\{(?:bmatrix|vmatrix|Bmatrix|smallmatrix|matrix)\}"), r"\\begin{pmatrix}"),
    (re.compile(r"\\end\{(?:bmatrix|vmatrix|Bmatrix|smallmatrix|matrix)\}"), r"\\end{pmatrix}"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\*"), r"\\cdot "),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"!="), r"\\ne "),
]
_ORNAMENT = re.compile(r"\\(?:textcolor\s*\{[^{}]*\}|color\s*\{[^{}]*\}|checkmark|blacksquare|square|qed)(?![a-zA-Z])")
_DEGREES_IN_CALL = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s*\^\s*\{?\d\}?)?)\s*[({]?\s*(\d+(?:\.\d+)?)\s*\\degree\s*[)}]?"
)
_BARE_NAME = re.compile(
    r"(?<![a-zA-Z\\])(pi|theta|alpha|beta|infinity|infty|inf|sqrt|arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|ln|log)"
    r"(?=[^a-zA-Z]|$)"
)
_FRAC_SHORT = re.compile(r"\\frac\s*(?:(\d)\s*(\d)|(\d)\s*(?=\{)|(\{[^{}]*\})\s*(\d)(?!\d*\}))")
_SQRT_SHORT = re.compile(r"\\sqrt\s*(\d|[a-zA-Z](?![a-zA-Z]))")
_POWER_SHORT = re.compile(r"([\^_])\s*(-?\d|[a-zA-Z])(?![\w}])|([\^_])\s*(\d)(?=[a-zA-Z])")
_SPACES = re.compile(r"\s+")
_BEFORE, _AFTER = " \t\r\n,;:", " \t\r\n.,;:"


def clean(text: str) -> str:
    """Returns ``text`` in plain form; words that stood in ``\\text{...}`` are between marks (:data:`TEXT_OPEN`)."""
    if not text.isascii():
        text = _plain_unicode(text)
    text = text.replace(TEXT_OPEN, "").replace(TEXT_CLOSE, "")
    text = text.replace(r"\$", "").replace("$", "").replace(r"\%", "%")
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", text) if "\\" in text else text
    text = _SPACING_IN_NUMBER.sub("", text)
    text = _LAYOUT.sub(_layout, _ORNAMENT.sub("", text))
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    text = _mark_text(text)
    text = _DEGREES_IN_CALL.sub(r"\1(\2\\cdot\\pi/180)", text)
    text = _BARE_NAME.sub(_named, text)
    text = _close_calls(text)
    text = _FRAC_SHORT.sub(_frac, text)
    text = _SQRT_SHORT.sub(r"\\sqrt{\1}", text)
    text = _POWER_SHORT.sub(_power, text)
    text = re.sub(r"^(?:\\approx|\\therefore|=|:)\s*", "", text.strip(_BEFORE))
    return _SPACES.sub(" ", text).lstrip(_BEFORE).rstrip(_AFTER)


def strip_marks(text: str) -> str:
    """``text`` without the marks of words."""
    return _SPACES.sub(" ", text.replace(TEXT_OPEN, " ").replace(TEXT_CLOSE, " ")).strip()


def compact(text: str) -> str:
    r"""A form for comparing as strings: no blanks but those that end a command (``\pi x``)."""
    text = strip_marks(text).replace(r"\cdot ", r"\cdot")
    text = re.sub(r"(?<![a-zA-Z])\s+|\s+(?![a-zA-Z])", "", text)
    return re.sub(r"(?<!\\)(?<![a-zA-Z])([a-zA-Z]) (?=[a-zA-Z])", r"\1", text)


def matching(text: str, start: int, opening: str, closing: str) -> int:
    """Index just past the bracket that closes the one at ``start``; -1 where none does. Escaped ones are skipped."""
    depth, i = 0, start
    while i < len(text):
        c = text[i]
        if c == "\\":
            i += 2
            continue
        if c == opening:
            depth += 1
        elif c == closing:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return -1


def split_top(text: str, separators: str) -> list[str]:
    r"""Splits at separators that stand outside all of ``() [] {} \{ \}``. A half-open ``[1,2)`` is one bracket."""
    parts, depth, last, i = [], 0, 0, 0
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text):
            if text[i + 1] == "{":
                depth += 1
            elif text[i + 1] == "}":
                depth -= 1
            i += 2
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth == 0 and c in separators:
            parts.append(text[last:i])
            last = i + 1
        i += 1
    parts.append(text[last:])
    return [p.strip() for p in parts]


# -- steps --------------------------------------------------------------------------------------------------------


def _plain_unicode(text: str) -> str:
    text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
    text = _VULGAR.sub(_vulgar, text)
    text = re.sub(r"√\s*\(", r"\\sqrt(", text)
    text = re.sub(r"√\s*(\d+|[a-zA-Z])", r"\\sqrt{\1}", text)
    text = re.sub("[£€¥₹]", "", text)
    text = _SYMBOL.sub(lambda m: _SYMBOLS[m.group()], text)
    text = unicodedata.normalize("NFKC", text)
    return _SYMBOL.sub(lambda m: _SYMBOLS[m.group()], text)


def _vulgar(match: re.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", match.group()).partition("⁄")
    return rf"\frac{{{over}}}{{{under}}}"


def _layout(match: re.Match[str]) -> str:
    word = match.group()
    return "" if word in (r"\,", r"\!") or word.startswith((r"\left", r"\right", r"\big", r"\Big")) else " "


def _mark_text(text: str) -> str:
    pieces, position = [], 0
    while (found := _TEXT_COMMAND.search(text, position)) is not None:
        end = matching(text, found.end() - 1, "{", "}")
        if end < 0:
            break
        content = text[found.end() : end - 1]
        word = content.strip()
        pieces.append(text[position : found.start()])
        if found.group().startswith(r"\operatorname") and re.fullmatch("[a-z]{2,7}", word):
            pieces.append("\\" + word + " ")
        elif any(c.isalpha() for c in word) and "\\" not in word and not word[0].isdigit():
            pieces.append(TEXT_OPEN + content + TEXT_CLOSE)
        else:
            pieces.append(content)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _named(match: re.Match[str]) -> str:
    name = match.group(1)
    return r"\infty " if name in ("infinity", "infty", "inf") else f"\\{name} " if name == "pi" else f"\\{name}"


def _close_calls(text: str) -> str:
    r"""``\sqrt(x)`` to ``\sqrt{x}``, ``^(n)`` to ``^{n}``."""
    for lead in (r"\sqrt(", "^("):
        at = text.find(lead)
        while at >= 0:
            opening = at + len(lead) - 1
            end = matching(text, opening, "(", ")")
            if end < 0:
                break
            text = f"{text[:opening]}{{{text[opening + 1 : end - 1]}}}{text[end:]}"
            at = text.find(lead, opening)
    return text


def _frac(match: re.Match[str]) -> str:
    if match.group(1):
        return rf"\frac{{{match.group(1)}}}{{{match.group(2)}}}"
    if match.group(3):
        return rf"\frac{{{match.group(3)}}}"
    return rf"\frac{match.group(4)}{{{match.group(5)}}}"


def _power(match: re.Match[str]) -> str:
    mark, what = (match.group(1), match.group(2)) if match.group(1) else (match.group(3), match.group(4))
    return f"{mark}{{{what}}}"

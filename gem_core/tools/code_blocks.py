"""Finding Python code in what a model wrote: tags, fenced blocks, and the calls of chat models."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence

from gem_core.tools.base_tool import ToolCall
from gem_core.tools.tool_calls import iter_chat_calls

#: How chat models name a Python tool, and its argument.
CALL_NAMES = ("python", "python_code", "code_interpreter", "execute_python", "run_python")
_ARGUMENTS = ("code", "source", "script", "input")

_TAG, _END_TAG = "<python>", "</python>"
_FENCE = re.compile(r"(?P<fence>`{3,})[ \t]*\n?[ \t]*(?:python3?|py)(?![\w+#-])[^\n`]*\n?", re.IGNORECASE)
#: What a final answer looks like: an unclosed block with one in it, that is no code, is prose about a tag.
_FINAL_ANSWER = re.compile(r"\\boxed\{|<answer>")
#: Closing marks tried for one block, and the longest code that is parsed to choose among them.
_MAX_ENDS = 8
_MAX_PARSED = 100_000


def find_code(action: str, start: int = 0, call_names: Sequence[str] = CALL_NAMES) -> ToolCall | None:
    """Finds the first piece of code at or after ``start``; it is ``arguments["code"]`` of the result.

    Understood: ``<python>...</python>``, fenced blocks marked ``python`` or ``py``, and ``<tool_call>`` with one of
    ``call_names`` and the argument ``code``. Code may mention its own closing mark: the block ends at the first one
    that leaves code which parses. A missing mark at the end of the text is forgiven.
    """
    found = [call for call in (_find_tag(action, start), _find_fence(action, start)) if call is not None]
    limit = min((call.start for call in found), default=len(action))
    for call in iter_chat_calls(action, start):
        if call.start >= limit:
            break
        if call.name in call_names:
            found.append(_from_call(call))
            break
    return min(found, key=lambda call: call.start, default=None)


def _find_tag(action: str, start: int) -> ToolCall | None:
    at = action.find(_TAG, start)
    if at < 0:
        return None
    ends = ((m.start(), m.end()) for m in re.finditer(_END_TAG, action[at + len(_TAG) :]))
    return _block(action, at, at + len(_TAG), ends)


def _find_fence(action: str, start: int) -> ToolCall | None:
    match = _FENCE.search(action, start)
    if match is None:
        return None
    # As many backticks as opened it; one that begins its line is the better end, but any will do.
    closing = re.compile(rf"{match['fence']}(?!`)")
    ends = ((m.start(), m.end()) for m in closing.finditer(action[match.end() :]))
    return _block(action, match.start(), match.end(), ends)


def _block(action: str, start: int, inside: int, ends: Iterator[tuple[int, int]]) -> ToolCall | None:
    """The block from ``start``, its content from ``inside``; ``ends`` are relative to the latter."""
    first: ToolCall | None = None
    for _, (stop, after) in zip(range(_MAX_ENDS), ends, strict=False):
        code = clean_code(action[inside : inside + stop])
        call = ToolCall(start, inside + after, arguments={"code": code})
        if parses(code):
            return call
        first = first or call
    if first is not None:
        return first
    code = clean_code(action[inside:])
    if not code or (_FINAL_ANSWER.search(code) and not parses(code)):
        return None
    return ToolCall(start, len(action), arguments={"code": code})


def _from_call(call: ToolCall) -> ToolCall:
    if call.error is not None:
        return call
    code = next((call.arguments[a] for a in _ARGUMENTS if isinstance(call.arguments.get(a), str)), None)
    if code is None:
        return ToolCall(call.start, call.end, call.name, call.arguments, "the call needs one argument, code, a string")
    return ToolCall(call.start, call.end, call.name, {"code": clean_code(code)})


def clean_code(code: str) -> str:
    """Without blank lines around it and without the indentation that all lines share."""
    return textwrap.dedent(code.replace("\r\n", "\n")).strip("\n").rstrip()


def parses(code: str) -> bool:
    """Whether ``code`` is Python; what is too long to look at counts as such."""
    if len(code) > _MAX_PARSED:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True

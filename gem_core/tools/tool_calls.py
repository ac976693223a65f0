"""Finding tool calls in what a model wrote: tags, and the JSON and XML calls of chat models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gem_core.tools.base_tool import ToolCall

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
#: Calls read in one action; a model stuck in a loop writes thousands, and reading each costs time.
_MAX_CALLS = 64
_JSON = json.JSONDecoder(strict=False)  # models put raw line breaks into strings
# GEM 0.1: <tool_name>f</tool_name><arguments>{...}</arguments>
_GEM_NAME = re.compile(r"\s*<tool_name>([^<]*)</tool_name>\s*<arguments>\s*")
_GEM_END = re.compile(r"\s*</arguments>")
# Qwen3-Coder: <function=f><parameter=p>value</parameter></function>
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>")
_NEXT_PARAMETER = re.compile(r"</parameter>\s*(?=<parameter=|</function>|</tool_call>|$)")
_FUNCTION_END = re.compile(r"\s*</function>")
_CALL_END = re.compile(r"\s*</tool_call>")
#: What a final answer looks like: text after an unclosed tag that holds one is prose about the tag, not a call.
_FINAL_ANSWER = re.compile(r"\\boxed\{|<answer>")


def find_tagged(action: str, tag: str, start: int = 0) -> tuple[int, int, str] | None:
    """Finds ``<tag>...</tag>`` and returns ``(start, end, content)``, the content stripped.

    The closing tag may be missing at the end of the text, where an engine cut it off as a stop string; an unclosed tag
    that a final answer follows is taken as prose. A closing tag without an opening one is ignored, and an empty pair
    passed over.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    at = action.find(opening, start)
    while at >= 0:
        inside = at + len(opening)
        close = action.find(closing, inside)
        # "use <search> to look things up: <search>x</search>": the opening nearest to the closing tag counts.
        nearest = action.rfind(opening, inside, close if close >= 0 else len(action))
        if nearest >= 0:
            at, inside = nearest, nearest + len(opening)
        content = action[inside : close if close >= 0 else len(action)]
        if close >= 0 and content.strip():
            return at, close + len(closing), content.strip()
        if close < 0:
            if content.strip() and not _FINAL_ANSWER.search(content):
                return at, len(action), content.strip()
            return None
        at = action.find(opening, close)
    return None


def iter_chat_calls(action: str, start: int = 0) -> Iterator[ToolCall]:
    """Yields the calls of chat models, in order.

    Understood inside ``<tool_call>...</tool_call>``: ``{"name": ..., "arguments": {...}}`` (Hermes, Qwen; also
    ``parameters``, also arguments as a JSON string), ``<function=name><parameter=key>value</parameter></function>``
    (Qwen3-Coder), and GEM's ``<tool_name>`` with ``<arguments>``. A closing tag inside a JSON string does not end the
    call; a missing one at the end of the text is forgiven. What cannot be read is yielded with ``error`` set.
    """
    at = action.find(_OPEN, start)
    last_close = action.rfind(_CLOSE)
    read = 0
    while at >= 0 and read < _MAX_CALLS:
        call = _read_call(action, at, last_close)
        if call is not None:
            read += 1
            yield call
        at = action.find(_OPEN, call.end if call is not None else at + len(_OPEN))


def _read_call(action: str, at: int, last_close: int) -> ToolCall | None:
    inside = at + len(_OPEN)
    if match := _GEM_NAME.match(action, inside):
        return _read_gem(action, at, match)
    if match := _FUNCTION.match(action, inside):
        return _read_function(action, at, match)
    brace = _skip_space(action, inside)
    if not action.startswith(("{", "[", '"'), brace):
        if last_close < inside:  # the tag mentioned in prose
            return None
        close = action.find(_CLOSE, inside)
        if not action[inside:close].strip():
            return None
        return ToolCall(at, close + len(_CLOSE), error='expected {"name": ..., "arguments": {...}}')
    try:
        value, end = _JSON.raw_decode(action, brace)
    except (ValueError, RecursionError) as e:
        return ToolCall(at, _close_after(action, inside), error=f"malformed JSON: {_short(e)}")
    return _from_json(value, at, _close_after(action, end))


def _from_json(value: Any, at: int, end: int) -> ToolCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):  # the OpenAI form
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ToolCall(at, end, error='expected {"name": ..., "arguments": {...}}')
    arguments = value.get("arguments", value.get("parameters", {}))
    call = ToolCall(at, end, name=value["name"].strip())
    return _with_arguments(call, arguments)


def _read_gem(action: str, at: int, match: re.Match[str]) -> ToolCall:
    call = ToolCall(at, 0, name=match[1].strip())
    arguments: Any
    try:
        if _GEM_END.match(action, match.end()):
            arguments, end = {}, match.end()
        else:
            arguments, end = _JSON.raw_decode(action, match.end())
    except (ValueError, RecursionError) as e:
        return replace(call, end=_close_after(action, match.end()), error=f"malformed JSON: {_short(e)}")
    if closing := _GEM_END.match(action, end):
        end = closing.end()
    return _with_arguments(replace(call, end=_close_after(action, end)), arguments)


def _read_function(action: str, at: int, match: re.Match[str]) -> ToolCall:
    arguments: dict[str, Any] = {}
    position = match.end()
    while parameter := _PARAMETER.match(action, _skip_space(action, position)):
        closing = _NEXT_PARAMETER.search(action, parameter.end())
        stop = closing.start() if closing else len(action)
        value = action[parameter.end() : stop]
        # The template puts each value on lines of its own; those two line breaks are not part of it.
        arguments[parameter[1].strip()] = value.removeprefix("\n").removesuffix("\n")
        position = closing.end() if closing else len(action)
    end = ending.end() if (ending := _FUNCTION_END.match(action, position)) else position
    return ToolCall(at, _close_after(action, end), name=match[1].strip(), arguments=arguments)


def _with_arguments(call: ToolCall, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = _JSON.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as e:
            return replace(call, error=f"the arguments are not JSON: {_short(e)}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return replace(call, error=f"the arguments must be an object, got {type(arguments).__name__}")
    return replace(call, arguments=arguments)


def _close_after(action: str, position: int) -> int:
    """The end of the call whose content was read up to ``position``."""
    if match := _CALL_END.match(action, position):
        return match.end()
    following = action.find(_OPEN, position)
    limit = following if following >= 0 else len(action)
    close = action.find(_CLOSE, position, limit)
    return close + len(_CLOSE) if close >= 0 else limit


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


# -- what a tool gives back ---------------------------------------------------------------------------------------


def clip(text: str, limit: int | None) -> str:
    """Keeps the head and the tail of a text longer than ``limit`` characters and says how many it left out."""
    if limit is None or len(text) <= limit:
        return text
    head = (limit + 1) // 2
    tail = limit - head
    left_out = len(text) - limit
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[len(text) - tail :] if tail else ''}"


def as_text(output: object) -> str:
    """Any tool output as text that tokenizers and JSON take: bytes are decoded, lone surrogates and control characters
    (other than tab and line breaks) written as escapes."""
    if output is None:
        return ""
    text = bytes(output).decode("utf-8", "backslashreplace") if isinstance(output, (bytes, bytearray)) else str(output)
    return _UNPRINTABLE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

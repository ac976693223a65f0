from __future__ import annotations

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.tools.tool_calls import as_text, clip, find_tagged, iter_chat_calls


@pytest.mark.parametrize(
    ("action", "content", "end"),
    [
        ("a <search> x y </search> b", "x y", "</search>"),
        ("<search>a\nb</search>", "a\nb", "</search>"),
        ("</search> first <search>x</search>", "x", "</search>"),
        ("I may use <search> or not: <search>x</search>", "x", "</search>"),
        ("<search> </search><search>x</search>", "x", "</search>"),
        ("<think>hm</think><search>cut off at the stop string", "cut off at the stop string", ""),
    ],
)
def test_tags_are_found(action: str, content: str, end: str) -> None:
    found = find_tagged(action, "search")
    assert found is not None
    start, stop, text = found
    assert text == content
    assert action[start:].startswith("<search>")
    assert action[:stop].endswith(end)


@pytest.mark.parametrize(
    "action",
    ["", "no tag", "</search>", "<search>", "<search></search>", r"The <search> tag is not needed: \boxed{4}"],
)
def test_prose_about_a_tag_is_no_call(action: str) -> None:
    assert find_tagged(action, "search") is None


HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (HERMES, "add", {"a": 1, "b": [2, {"c": "}"}]}),
        ('<tool_call>{"name": "f", "parameters": {"q": "x"}}</tool_call>', "f", {"q": "x"}),
        ('<tool_call>{"name": "f", "arguments": "{\\"q\\": \\"x\\"}"}</tool_call>', "f", {"q": "x"}),
        ('<tool_call>{"name": "f"}</tool_call>', "f", {}),
        ('<tool_call>{"type": "function", "function": {"name": "f", "arguments": {}}}</tool_call>', "f", {}),
        ('<tool_call>{"name": "f", "arguments": {"q": "</tool_call>"}}</tool_call>', "f", {"q": "</tool_call>"}),
        ('<tool_call>{"name": "f", "arguments": {"q": "a\nb"}}</tool_call>', "f", {"q": "a\nb"}),
        ('<tool_call>{"name": "f", "arguments": {"q": 1}}', "f", {"q": 1}),
        (
            '<tool_call><tool_name>f</tool_name><arguments>{"q": "</arguments>"}</arguments></tool_call>',
            "f",
            {"q": "</arguments>"},
        ),
        ("<tool_call>\n<tool_name>f</tool_name>\n<arguments></arguments>\n</tool_call>", "f", {}),
        (
            "<tool_call>\n<function=f>\n<parameter=code>\nprint('</parameter>')\nx = 1\n</parameter>\n"
            "<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
            "f",
            {"code": "print('</parameter>')\nx = 1", "n": "3"},
        ),
    ],
)
def test_chat_calls_are_read(text: str, name: str, arguments: dict[str, object]) -> None:
    action = f"<think>Let me call it.</think>\n{text}\nand wait"
    if not text.endswith("</tool_call>"):
        action = action.removesuffix("\nand wait")
    (call,) = iter_chat_calls(action)
    assert (call.name, call.arguments, call.error) == (name, arguments, None)
    assert action[call.start : call.end] == text


def test_several_calls_come_in_order() -> None:
    calls = list(iter_chat_calls(f"{HERMES}\n{HERMES.replace('add', 'sub')} {HERMES}"))
    assert [c.name for c in calls] == ["add", "sub", "add"]
    assert all(a.end <= b.start for a, b in itertools.pairwise(calls))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('<tool_call>{"name": "f", "arguments": {</tool_call>', "malformed JSON"),
        ("<tool_call>{}</tool_call>", "expected"),
        ("<tool_call>[1, 2]</tool_call>", "expected"),
        ("<tool_call>call f please</tool_call>", "expected"),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "must be an object"),
        ('<tool_call>{"name": "f", "arguments": "x y"}</tool_call>', "not JSON"),
        ("<tool_call><tool_name>f</tool_name><arguments>{oops</arguments></tool_call>", "malformed JSON"),
        ("<tool_call>" + '{"name":"f","arguments":' + "[" * 50_000 + "</tool_call>", "malformed JSON"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, word: str) -> None:
    (call,) = iter_chat_calls(text)
    assert call.error is not None
    assert word in call.error
    assert len(call.error) < 300


def test_a_tag_in_prose_is_no_call() -> None:
    assert list(iter_chat_calls("I could write <tool_call> here but need not.")) == []
    assert list(iter_chat_calls("<tool_call></tool_call>")) == []


@pytest.mark.parametrize("piece", ["<tool_call>", "<tool_call>{", "<search>", "<search></search>", "</tool_call>"])
def test_a_megabyte_of_tags_is_read_in_a_second(piece: str) -> None:
    action = piece * (1_000_000 // len(piece))
    start = time.perf_counter()
    for _ in iter_chat_calls(action):
        pass
    find_tagged(action, "search")
    assert time.perf_counter() - start < 2.0  # seconds; linear takes under 0.5 on a slow core


pieces = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", '{"name":"f"', ',"arguments":', "{}", "}", "<function=f>", "<parameter=x>"),
        *("</parameter>", "</function>", "<tool_name>f</tool_name>", "<arguments>", "</arguments>"),
        *("\x00", "é", '"', "a\n"),
    ]
)


@given(st.lists(pieces, max_size=25).map("".join))
def test_any_mixture_is_read_without_an_exception(action: str) -> None:
    end = 0
    for call in iter_chat_calls(action):
        assert end <= call.start < call.end <= len(action)
        end = call.end
        json.dumps(call.arguments)


@given(st.text(max_size=60), st.integers(1, 40))
def test_clip_keeps_head_and_tail_and_counts_the_rest(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    if len(text) <= limit:
        assert clipped == text
    else:
        assert clipped.startswith(text[: (limit + 1) // 2])
        assert f"[... {len(text) - limit} characters left out ...]" in clipped
        assert clipped.endswith("\n" + text[len(text) - limit // 2 :] if limit > 1 else "\n")


def test_binary_output_becomes_text() -> None:
    assert as_text(b"ok \xff\x00\n") == "ok \\xff\\x00\n"
    assert as_text("a\x1b[31m\ud800\tb") == "a\\x1b[31m\\ud800\tb"
    assert as_text(None) == ""
    assert as_text(42) == "42"
    as_text("\ud83d").encode()

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from gem_core.bridges.chat_endpoint import Channel, describe_tools, new_messages, open_channel, render

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}


def post(channel: Channel, body: Any) -> dict[str, Any]:
    request = urllib.request.Request(f"{channel.base_url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        text = response.read().decode()
    data: dict[str, Any] = json.loads(text.split("\n")[0].removeprefix("data: "))
    return data


def ask(channel: Channel, answer: str, **body: Any) -> dict[str, Any]:
    """Asks from another thread and answers here."""
    replies: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: replies.append(post(channel, {"messages": [USER], **body})))
    asking.start()
    request = channel.events.get(timeout=10)
    assert request.messages == [USER]
    request.answer(answer)
    asking.join(10)
    return replies[0]


def test_a_reply_goes_to_the_caller_that_waits() -> None:
    first, second = open_channel(), open_channel()
    assert ask(first, "one")["choices"][0]["message"]["content"] == "one"
    assert ask(second, "")["choices"][0]["message"]["content"] == " "
    assert ask(first, "two", stream=True)["choices"][0]["delta"]["content"] == "two"
    first.close()
    second.close()


def test_tool_calls_become_the_api_s_where_tools_are_offered() -> None:
    channel = open_channel()
    text = 'Let me. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    message = ask(channel, text, tools=[TOOL])["choices"][0]["message"]
    assert message["content"] == "Let me."
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    assert ask(channel, text)["choices"][0]["message"]["content"] == text
    assert ask(channel, "none", tools=[TOOL])["choices"][0]["finish_reason"] == "stop"
    channel.close()


def test_a_closed_channel_refuses_what_waits_and_what_comes() -> None:
    channel = open_channel()
    codes: list[int] = []

    def asking() -> None:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(channel, {"messages": [USER]})
        codes.append(caught.value.code)

    thread = threading.Thread(target=asking)
    thread.start()
    channel.events.get(timeout=10)
    channel.close()
    thread.join(10)
    asking()
    assert codes == [410, 410]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(open_channel(), {"prompt": "x"})


def test_only_what_is_new_is_shown() -> None:
    reply = {"role": "assistant", "content": "hi"}
    more = {"role": "user", "content": [{"type": "text", "text": "and?"}, {"type": "image_url"}]}
    assert new_messages([], [USER]) == [USER]
    assert new_messages([USER], [USER, reply, more]) == [more]
    assert new_messages([USER], [{"role": "user", "content": "rewritten"}, reply, more])[0]["content"] == "rewritten"
    assert render([more]) == "and?\n[image_url]"
    assert render([USER, reply]) == "[user]\nhello\n\n[assistant]\nhi"
    assert describe_tools([]) == ""
    assert '"name": "f"' in describe_tools([TOOL])

"""Turns a library that calls a chat model into one that is stepped: an endpoint whose answers come from outside.

Libraries that own the rollout ask an OpenAI-compatible endpoint for each turn. This one holds the request until
somebody else, such as ``Env.step``, gives the answer.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gem_core.tools.tool_calls import iter_chat_calls

logger = logging.getLogger(__name__)

Message = dict[str, Any]

_PATH = re.compile(r"/([0-9a-f]{32})/v1/chat/completions/?")


@dataclass
class ChatRequest:
    """One call of the model, waiting for :meth:`answer`."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    _done: threading.Event = field(default_factory=threading.Event)
    _body: dict[str, Any] | None = None

    def answer(self, text: str) -> None:
        """Gives the model's reply. Where tools were offered, ``<tool_call>`` blocks become the API's tool calls."""
        message: Message = {"role": "assistant", "content": text or " "}  # clients refuse an empty reply
        finish = "stop"
        calls = [c for c in iter_chat_calls(text) if c.error is None] if self.tools else []
        if calls:
            finish = "tool_calls"
            message["content"] = text[: calls[0].start].strip() or None
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid.uuid4().hex[:12]}",
                    "type": "function",
                    "function": {"name": c.name, "arguments": json.dumps(c.arguments)},
                }
                for c in calls
            ]
        self._body = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": 0,
            "model": "gem",
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        self._done.set()

    def refuse(self) -> None:
        """Lets the caller fail."""
        self._done.set()

    def wait(self) -> dict[str, Any] | None:
        self._done.wait()
        return self._body


class Channel:
    """One client's way into the endpoint."""

    def __init__(self, base_url: str, key: str) -> None:
        #: For the client's ``base_url``.
        self.base_url = base_url
        self.key = key
        #: :class:`ChatRequest` objects, and whatever the owner puts beside them.
        self.events: queue.Queue[Any] = queue.Queue()
        self._open: list[ChatRequest] = []
        self.closed = False

    def submit(self, request: ChatRequest) -> None:
        self._open.append(request)
        self.events.put(request)

    def close(self) -> None:
        """Refuses the requests that wait and all that come."""
        self.closed = True
        _CHANNELS.pop(self.key, None)
        for request in self._open:
            request.refuse()


_CHANNELS: dict[str, Channel] = {}
_lock = threading.Lock()
_server: ThreadingHTTPServer | None = None


def open_channel() -> Channel:
    """Opens a channel on this process's endpoint (started with the first, on the loopback interface)."""
    global _server
    with _lock:
        if _server is None:
            _server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
            _server.daemon_threads = True
            threading.Thread(target=_server.serve_forever, name="gem-chat-endpoint", daemon=True).start()
        key = uuid.uuid4().hex
        channel = Channel(f"http://127.0.0.1:{_server.server_address[1]}/{key}/v1", key)
        _CHANNELS[key] = channel
        return channel


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        match = _PATH.fullmatch(self.path)
        channel = _CHANNELS.get(match[1]) if match else None
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
            request = ChatRequest(list(body["messages"]), list(body.get("tools") or []))
        except (ValueError, KeyError, TypeError) as e:
            self._send(400, {"error": {"message": f"not a chat completion request: {e}"}})
            return
        if channel is None or channel.closed:
            self._send(410, {"error": {"message": "this episode is over"}})
            return
        channel.submit(request)
        answer = request.wait()
        if answer is None:
            self._send(410, {"error": {"message": "this episode is over"}})
        elif body.get("stream"):
            self._stream(answer)
        else:
            self._send(200, answer)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: dict[str, Any]) -> None:
        """The whole reply as one server-sent event."""
        choice = body["choices"][0]
        calls = [{"index": i, **c} for i, c in enumerate(choice["message"].get("tool_calls", []))]
        delta = {**choice["message"], **({"tool_calls": calls} if calls else {})}
        chunk = {
            **body,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}],
        }
        data = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)


def content_text(content: Any) -> str:
    """A message's content as text; parts that are not text are named."""
    if isinstance(content, list):
        return "\n".join(str(p.get("text", "")) if p.get("type") == "text" else f"[{p.get('type')}]" for p in content)
    return "" if content is None else str(content)


def render(messages: Sequence[Message]) -> str:
    """Messages as one observation: a single one as it is; roles are named where there are replies among them."""
    if any(m.get("role") == "assistant" for m in messages):
        return "\n\n".join(f"[{m.get('role')}]\n{content_text(m.get('content'))}" for m in messages)
    return "\n\n".join(content_text(m.get("content")) for m in messages)


def new_messages(before: Sequence[Message], now: Sequence[Message]) -> list[Message]:
    """What ``now`` adds to ``before`` and the reply to it; all of it where the history was rewritten."""
    kept = [(m.get("role"), content_text(m.get("content"))) for m in now[: len(before)]]
    if before and kept == [(m.get("role"), content_text(m.get("content"))) for m in before]:
        rest = list(now[len(before) :])
        if rest and rest[0].get("role") == "assistant":
            return rest[1:]
    return list(now)


def describe_tools(tools: Sequence[dict[str, Any]]) -> str:
    """Offered tools as text, with the form of a call; empty where there are none."""
    if not tools:
        return ""
    listed = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
    return (
        f"\n\nTools:\n<tools>\n{listed}\n</tools>\n"
        'Call one with <tool_call>\n{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>'
    )

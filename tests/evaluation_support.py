"""Responses of an OpenAI-compatible server, said one by one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any


def reply(status: int, body: Any, headers: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data


def chat(text: str | None, finish: str = "stop", **usage: int) -> bytes:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return reply(200, {"choices": [choice], "usage": usage})


@dataclass
class CannedServer:
    """Sends what it is told to, one response a request, in order; the last one again and again.

    ``None`` = never answers. A response shorter than its Content-Length ends the connection.
    """

    responses: list[bytes | None] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    base_url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
                self.headers.append(headers)
                self.requests.append(json.loads(await reader.readexactly(int(headers["content-length"]))))
                response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
                if response is None:
                    await asyncio.sleep(60)
                    return
                writer.write(response)
                await writer.drain()
                head, _, body = response.partition(b"\r\n\r\n")
                if len(body) < int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class CharacterTokenizer:
    """One token a character; 0 ends a turn. The template writes roles as in ChatML."""

    chat_template = "characters"
    all_special_tokens = ("\0",)
    eos_token_id = 0
    bos_token_id = None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(t) for t in token_ids if t or not skip_special_tokens)

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        text = "".join(f"<{m['role']}>{m['content']}\0" for m in conversation)
        return text + ("<assistant>" if add_generation_prompt else "")

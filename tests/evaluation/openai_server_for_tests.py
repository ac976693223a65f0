"""An OpenAI-compatible server on the loopback interface that answers by a scripted expert, late and with faults.

``python openai_server_for_tests.py --latency 0.2 --faults 0.3 --ledger FILE`` prints its port. It plays
GuessTheNumber; in ``/v1/completions`` a prompt is read as character codes (``CharacterTokenizer`` of
``evaluation_support``). Every complete answer is written to the ledger before it is sent: that is what a provider
would bill.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gem_core.experts import bisect_the_number

FAULTS = ("429", "500", "empty", "no choices", "half", "reset", "hang")
#: Longer than any client here waits.
HANG_S = 60.0


def read_conversation(prompt: list[int]) -> list[dict[str, str]]:
    """The inverse of the template."""
    messages = []
    for part in "".join(map(chr, prompt)).split("\0"):
        role, _, content = part.removeprefix("<").partition(">")
        messages.append({"role": role, "content": content})
    return messages[:-1]


class Server:
    def __init__(self, latency: float, faults: float, ledger: Path | None, kinds: tuple[str, ...] = FAULTS) -> None:
        self.latency, self.faults, self.kinds = latency, faults, kinds
        self.ledger = ledger.open("a", buffering=1) if ledger else None
        self.tries: Counter[str] = Counter()

    def fault(self, key: str) -> str | None:
        """Follows from the request and how often it came, so that every run meets the same faults."""
        self.tries[key] += 1
        draw = random.Random(f"{key}:{self.tries[key]}")
        return draw.choice(self.kinds) if draw.random() < self.faults else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *rest = head.split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (r.partition(":") for r in rest if r)}
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
                if not await self.answer(line.split()[1], headers, body, writer):
                    return
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(
        self, path: str, headers: dict[str, str], body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        """False: the connection ends."""
        key = headers.get("idempotency-key") or hashlib.sha256(json.dumps(body).encode()).hexdigest()
        fault = self.fault(key)
        if fault == "429":
            writer.write(response(429, {"error": {"message": "slow down"}}, "Retry-After: 0.05\r\n"))
            return True
        if self.latency:
            await asyncio.sleep(self.latency)
        if fault == "500":
            writer.write(response(500, {"error": {"message": "the model fell over"}}))
        elif fault == "empty":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n")
        elif fault == "no choices":
            writer.write(response(200, {"choices": []}))
        elif fault == "half":
            data = response(200, self.completion(path, body))
            writer.write(data[: len(data) * 3 // 4])
            return False
        elif fault == "reset":
            writer.transport.abort()
            return False
        elif fault == "hang":
            await asyncio.sleep(HANG_S)
            return False
        else:
            answer = self.completion(path, body)
            if self.ledger is not None:
                self.ledger.write(f"{key}\n")
            writer.write(response(200, answer))
        return True

    def completion(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        chat = path.endswith("/chat/completions")
        messages = body["messages"] if chat else read_conversation(body["prompt"])
        text = bisect_the_number(messages, random.Random(0))
        usage = {"prompt_tokens": sum(len(m["content"]) for m in messages), "completion_tokens": len(text) + 1}
        if chat:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        else:
            ids = [*map(ord, text), 0]
            logprobs = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [-0.5] * len(ids)}
            choice = {"index": 0, "text": text, "token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}
        return {"id": "x", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}


def response(status: int, body: dict[str, Any], more: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


async def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--latency", type=float, default=0.0)
    p.add_argument("--faults", type=float, default=0.0)
    p.add_argument("--kinds", default=",".join(FAULTS))
    p.add_argument("--ledger", type=Path)
    p.add_argument("--port", type=int, default=0)
    cli = p.parse_args()
    server = Server(cli.latency, cli.faults, cli.ledger, tuple(cli.kinds.split(",")))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", cli.port, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    # Ends with the process that started it: nobody else reads this pipe.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listener.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())

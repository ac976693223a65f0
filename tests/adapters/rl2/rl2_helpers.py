"""A server and environments for the tests."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from omegaconf import OmegaConf
from sglang.server import Server

import gem_core as gem
from gem_core.core import Env, StepTuple

_FOUND = importlib.util.find_spec("RL2")
#: Whether the RL2 that is installed is the repository; else it is rl-square 0.0.2. Told by a file, not by
#: ``gem_rl2.contract``, which is under test.
REPOSITORY = _FOUND is not None and any(
    (Path(folder) / "utils" / "communication.py").exists() for folder in _FOUND.submodule_search_locations or []
)
GUESS = {"env_id": "game:GuessTheNumber-v0", "env_kwargs": '{"max_turns": 3}', "seed": 5, "group": "g"}


@asynccontextmanager
async def serving(model: Any, tokenizer: Any) -> AsyncIterator[tuple[str, Server]]:
    """The stand-in for SGLang's server in this event loop: its address and itself."""
    server = Server(model, tokenizer)
    async with listening(server.app()) as url:
        yield url, server


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Scripted:
    """Answers every prompt with the same text, at most ``piece`` tokens a call (an abort cuts the rest)."""

    def __init__(self, tokenizer: Any, text: str, piece: int | None = None, logprobs: bool = True) -> None:
        self.tokenizer = tokenizer
        self.answer = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        self.piece = piece
        self.calls: list[dict[str, Any]] = []
        self.given: list[int] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        return app

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append(body)
        room = body["sampling_params"].get("max_new_tokens")
        left = self.answer[len(self.given) :]
        tokens = left[: self.piece][:room]
        self.given += tokens
        reason = "stop"
        if len(self.given) < len(self.answer):
            reason = "length" if room is not None and len(tokens) == room else "abort"
        if reason != "abort":
            self.given = []
        return web.json_response(
            {
                "text": self.tokenizer.decode(
                    tokens, skip_special_tokens=body["sampling_params"].get("skip_special_tokens", True)
                ),
                "meta_info": {
                    "finish_reason": {"type": reason},
                    "completion_tokens": len(tokens),
                    "output_token_logprobs": [[-0.25 * (i + 1), t, None] for i, t in enumerate(tokens)],
                },
            }
        )


def train_config(**changes: Any) -> Any:
    """``rollout.train`` of the repository's configuration."""
    return OmegaConf.create(
        {
            "responses_per_prompt": 4,
            "sampling_params": {"temperature": 1.0, "max_new_tokens": 24, "stop": None},
            "partial_rollout": False,
            "dynamic_filtering": True,
            "apply_chat_template": True,
            "prompt_key": "prompt",
            "save_dir": "unused",
            **changes,
        }
    )


class HangingEnv(Env):
    """Seed 0: the reset hangs; seed 1: the second step hangs; seed 2: the second step raises; else three turns."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds, self._seed, self._turn = seconds, 0, 0
        self.closed = False

    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._seed, self._turn = seed or 0, 0
        if self._seed == 0:
            time.sleep(self._seconds)
        return "Say a number.", {}

    def step(self, action: str) -> StepTuple:
        self._turn += 1
        if self._turn == 2 and self._seed == 1:
            time.sleep(self._seconds)
        if self._turn == 2 and self._seed == 2:
            raise RuntimeError("the connection broke")
        return "Again.", 0.5 * self._turn, self._turn == 3, False, {"success": True}

    def close(self) -> None:
        CLOSED.append(self._seed)

    def sample_random_action(self) -> str:
        return "1"


#: Seeds of the environments that were closed.
CLOSED: list[int] = []


class TalkEnv(Env):
    """Takes any answer; two to four turns, and rewards that differ with the answers."""

    def __init__(self) -> None:
        self._seed, self._turn = 0, 0

    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._seed, self._turn = seed or 0, 0
        return f"Guess a number, player {self._seed}.", {}

    def step(self, action: str) -> StepTuple:
        self._turn += 1
        reward = (sum(map(ord, action)) % 7 - 3) / 10
        return f"higher than {len(action)}", reward, self._turn == 2 + self._seed % 3, False, {"success": reward > 0}

    def sample_random_action(self) -> str:
        return "1"


if "test:Talk-v0" not in gem.list_envs():
    gem.register("test:Talk-v0", TalkEnv)
if "test:Hanging-v0" not in gem.list_envs():
    gem.register("test:Hanging-v0", HangingEnv)


def hanging_row(seed: int) -> dict[str, Any]:
    return {"extra_info": {"env_id": "test:Hanging-v0", "env_kwargs": "{}", "seed": seed, "group": str(seed)}}

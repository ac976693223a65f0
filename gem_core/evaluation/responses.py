"""Answers that were paid for, kept on disk until their episode is recorded.

An episode that a crash cut short is played again from its start; its answers come from this file as long as the
environment asks the same questions, so no finished turn is paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gem_core.evaluation.wire import Answer
from gem_core.session import Generation, Prompt

_Key = tuple[str, int, str]


class ResponseLog:
    """Appends answers to a file and finds them again.

    A line is written by one system call, before the answer is used; it survives the process, not a power cut. Lines cut
    short are left out.

    Args:
        path: Created with its folder if it does not exist.
        finished: Episodes that are recorded already; their answers are dropped from the file.
    """

    def __init__(self, path: str | Path, finished: Collection[str] = ()) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._known: dict[_Key, dict[str, Any]] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()
        #: Answers found instead of asked for.
        self.reused = 0
        self._load(finished)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def find(self, prompt: Prompt) -> Answer | None:
        """The answer to this very prompt, if there is one."""
        with self._lock:
            row = self._known.get((prompt.episode_id, prompt.turn, fingerprint(prompt)))
            if row is None:
                return None
            self.reused += 1
            self._count(prompt.episode_id, row["usage"])
        return Answer(tuple(row["ids"]), row["logprobs"], row["finish"], row["text"], row["usage"])

    def add(self, prompt: Prompt, generation: Generation) -> None:
        """Records an answer."""
        usage = dict(getattr(generation, "usage", {}))
        row = {
            "episode": prompt.episode_id,
            "turn": prompt.turn,
            "prompt": fingerprint(prompt),
            "text": generation.text,
            "ids": list(map(int, generation.token_ids)),
            "logprobs": None if generation.logprobs is None else list(map(float, generation.logprobs)),
            "finish": generation.finish_reason,
            "usage": usage,
        }
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with self._lock:
            self._count(prompt.episode_id, usage)
            while line:
                line = line[os.write(self._fd, line) :]

    def take_usage(self, episode_id: str) -> dict[str, int]:
        """What the episode's answers cost, reused ones included; forgotten afterwards."""
        with self._lock:
            return self._usage.pop(episode_id, {})

    def close(self, *, delete: bool = False) -> None:
        """Closes the file; ``delete`` when every episode is recorded."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if delete:
                self.path.unlink(missing_ok=True)

    def _load(self, finished: Collection[str]) -> None:
        if not self.path.exists():
            return
        kept: list[bytes] = []
        dropped = False
        with self.path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    row = None
                if row is None or row["episode"] in finished:
                    dropped = True
                    continue
                kept.append(line)
                self._known[row["episode"], row["turn"], row["prompt"]] = row
        if dropped:
            new = self.path.with_suffix(".tmp")
            new.write_bytes(b"".join(kept))
            new.replace(self.path)

    def _count(self, episode_id: str, usage: Mapping[str, int]) -> None:
        total = self._usage.setdefault(episode_id, {})
        for name, tokens in usage.items():
            total[name] = total.get(name, 0) + tokens


def fingerprint(prompt: Prompt) -> str:
    """Changes with anything that the answer depends on."""
    what = json.dumps([prompt.token_ids, prompt.messages, prompt.max_new_tokens], ensure_ascii=False)
    return hashlib.blake2b(what.encode("utf-8", "replace"), digest_size=12).hexdigest()


class Recorded:
    """A plain policy whose answers are kept in a :class:`ResponseLog`."""

    def __init__(self, policy: Any, log: ResponseLog) -> None:
        self._policy, self._log = policy, log

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        answers: list[Generation | None] = [self._log.find(p) for p in prompts]
        asked = [p for p, a in zip(prompts, answers, strict=True) if a is None]
        fresh = list(self._policy.generate(asked)) if asked else []
        if len(fresh) != len(asked):
            raise ValueError(f"the policy gave {len(fresh)} answers for {len(asked)} prompts")
        for prompt, generation in zip(asked, fresh, strict=True):
            self._log.add(prompt, generation)
        rest = iter(fresh)
        return [next(rest) if a is None else a for a in answers]


class AsyncRecorded:
    """As :class:`Recorded`, for an awaitable policy."""

    def __init__(self, policy: Any, log: ResponseLog) -> None:
        self._policy, self._log = policy, log

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        answers: list[Generation | None] = [self._log.find(p) for p in prompts]
        asked = [p for p, a in zip(prompts, answers, strict=True) if a is None]
        fresh = list(await self._policy.generate(asked)) if asked else []
        if len(fresh) != len(asked):
            raise ValueError(f"the policy gave {len(fresh)} answers for {len(asked)} prompts")
        for prompt, generation in zip(asked, fresh, strict=True):
            self._log.add(prompt, generation)
        rest = iter(fresh)
        return [next(rest) if a is None else a for a in answers]

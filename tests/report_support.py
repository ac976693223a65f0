"""Writes run folders without a trainer: a policy by formula learns a number game, the same way for the same seed."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gem_core.advantages import estimate_episodes
from gem_core.episode import Episode, StopReason, Turn, summarize
from gem_core.run_folder import RunFolder

ENVS = ("game:GuessTheNumber-v0", "game:Mastermind-v0")
WORDS = ("\\boxed{", "}", "<|end|>", " ", "Let", " me", " try", "\n", " higher", " lower", " so")


def make_run(
    path: Path,
    *,
    seed: int = 0,
    advantage: str = "rebn",
    points: int = 30,
    batch: int = 16,
    kept: int = 4,
    envs: Sequence[str] = ENVS[:1],
    think: int = 3,
) -> Path:
    """Writes run.json, metrics.jsonl and episodes.jsonl of a run whose success grows with its steps.

    Args:
        path: The folder.
        seed: Fixes every number in it.
        advantage: The estimator that ``advantages`` come from; "rebn" learns faster than the others here.
        points: Training batches; every fifth is followed by an evaluation.
        batch: Episodes a batch.
        kept: Episodes a batch that are recorded.
        envs: Ids the episodes take turns in.
        think: Most words before the answer of a turn.
    """
    rng = random.Random(seed)
    clock = iter(range(0, 10**9, 3))
    config = {
        "model": "tiny",
        "env_id": envs[0],
        "env_kwargs": {"max_turns": 8},
        "advantage": advantage,
        "gamma": 0.9,
        "learning_rate": 2e-3,
        "seed": seed,
        "output_dir": str(path),
    }
    run = RunFolder(path, config, tensorboard=False, clock=lambda: float(next(clock)))
    speed = 0.16 if advantage == "rebn" else 0.07
    for point in range(points):
        step = 8 * point
        skill = 1 / (1 + math.exp(3 - 2 * speed * point))
        for split, every in (("eval", 5), ("train", 1)):
            if point % every:
                continue
            first = 10**6 if split == "eval" else 1000 * point
            episodes = [
                _episode(rng, envs[i % len(envs)], f"{split}-{step}-{i}", first + i // 2, skill, think)
                for i in range(batch)
            ]
            loss = 0.4 * math.exp(-point / 12) + rng.gauss(0, 0.01)
            run.log_metrics(step, {**summarize(episodes), **({"loss": loss} if split == "train" else {})}, split=split)
            per_turn = estimate_episodes(advantage, episodes, gamma=0.9)
            texts = [
                [[WORDS[i] if i < 100 else str(i - 100) for i in t.response_ids] for t in e.turns] for e in episodes
            ]
            shown = [a.tolist() for a in per_turn[:kept]] if split == "train" else None
            run.log_episodes(step, episodes[:kept], shown, split, texts[:kept])
    return path


def _episode(rng: random.Random, env_id: str, episode_id: str, seed: int, skill: float, think: int) -> Episode:
    secret, low, high, wild = random.Random(seed).randint(1, 20), 1, 20, rng.randint(1, 20)
    episode = Episode(env_id=env_id, seed=seed, episode_id=episode_id, group_id=episode_id.rpartition("-")[0])
    observation = "A number between 1 and 20 is hidden. Answer as \\boxed{number}."
    for turn in range(8):
        clever = rng.random() < skill
        guess = (low + high) // 2 if clever else max(1, min(20, wild + rng.randint(-2, 2)))
        words = [rng.randrange(3, len(WORDS)) for _ in range(rng.randint(0, think))]
        ids = [*words, 0, 100 + guess, 1, 2]
        logprobs = [-rng.expovariate(2.0) * (1.3 - skill) for _ in words]
        logprobs += [-0.01, -rng.expovariate(1.0) * (1.3 - skill), -0.002, -0.001]
        reward = 1.0 if guess == secret else 0.0
        episode.turns.append(
            Turn(
                observation=observation,
                action=f"\\boxed{{{guess}}}",
                reward=reward,
                context_ids=(200, *range(201, 206 + turn), 3),
                response_ids=tuple(ids),
                logprobs=tuple(round(x, 6) for x in logprobs),
                new_sequence=turn == 0,
                info={"guess": guess, "action_is_valid": True},
            )
        )
        if guess == secret:
            episode.terminated, episode.success, episode.stop_reason = True, True, StopReason.TERMINATED
            episode.final_observation = f"Yes, it is {secret}."
            return episode
        low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))
        low, high = min(low, 20), max(high, 1)
        observation = f"The number is {'higher' if guess < secret else 'lower'} than {guess}."
    episode.truncated, episode.success, episode.stop_reason = True, False, StopReason.TRUNCATED
    episode.final_observation = observation
    return episode


#: Texts that must come out as text and as nothing else.
HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "--><svg onload=window.hacked=3>{{data}}{{script}}",
    "\x00\x01\x7f NUL and friends",
    "\u202egnp.exe \u2066 \u200b \ufeff bidirectional",
    "\u2028\u2029 separators, \ud800 alone, 𝒰𝓃𝒾𝒸ℴ𝒹ℯ 😀 e\u0301",
    "' \" ` ${window.hacked = 4} \\u003c &lt; &amp;",
    "]]><!DOCTYPE html><body onload=window.hacked=5>",
)


def make_hostile_run(path: Path) -> Path:
    """A run whose every text field is hostile, and one text 1 MB long."""
    run = RunFolder(path, {"env_id": HOSTILE[0], HOSTILE[1]: HOSTILE[2], "seed": 0}, tensorboard=False)
    run.log_metrics(0, {"success": 0.5, HOSTILE[0]: 1.0})
    run.log_metrics(1, {"success": float("nan"), "return": float("inf")})
    for text in (*HOSTILE, "x" * 1_000_000 + HOSTILE[0]):
        turn = Turn(
            observation=text,
            action=text,
            reward=1.0,
            context_ids=(1,),
            response_ids=(7, 8),
            logprobs=(-0.1, -3.0),
            finish_reason="length",
            info={text[:200]: text},
        )
        episode = Episode(
            env_id=text[:300],
            seed=1,
            episode_id=text[:300],
            group_id=text[:300],
            turns=[turn],
            stop_reason=StopReason.ENV_ERROR,
            error=text,
            final_observation=text,
            metadata={text[:200]: text},
        )
        run.log_episodes(0, [episode], [[-0.5]], tokens=[[[text, text[:50]]]])
    return path


def append(path: Path, *lines: Any) -> None:
    """Appends lines: JSON-able values, or texts as they are."""
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")


def embedded(page: str) -> dict[str, Any]:
    """The data in a report's HTML, found as a browser would find them."""
    scripts = Elements.of(page).scripts
    (attributes, text) = next((a, t) for a, t in scripts if a.get("id") == "data")
    if attributes["data-encoding"] == "gzip":
        text = gzip.decompress(base64.b64decode(text)).decode("utf-8")
    out: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return out


class Elements(HTMLParser):
    """The elements of a page, and its scripts' texts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._script = False

    @classmethod
    def of(cls, page: str) -> Elements:
        parser = cls()
        parser.feed(page)
        parser.close()
        return parser

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._script = tag == "script"
        if self._script:
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

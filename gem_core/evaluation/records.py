"""What an evaluation keeps of an episode in memory, and the episodes on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_core.episode import Episode

#: The key of ``Episode.metadata`` with what the episode's answers cost.
USAGE = "usage"


@dataclass(frozen=True)
class EpisodeRecord:
    """An episode's figures."""

    env_id: str
    episode_id: str
    #: The task: episodes of one task start from the same state.
    task: str
    success: bool | None
    #: Undiscounted.
    total_reward: float
    turns: int
    #: None where neither ids nor the endpoint's usage are known; likewise ``prompt_tokens``.
    sampled_tokens: int | None
    prompt_tokens: int | None
    #: None where the environment has no tools.
    tool_calls: int | None
    tool_errors: int | None
    stop_reason: str
    failed: bool
    error: str | None = None

    @classmethod
    def of(cls, episode: Episode) -> EpisodeRecord:
        if episode.stop_reason is None:
            raise ValueError(f"episode {episode.episode_id!r} is not over")
        usage: Mapping[str, int] = episode.metadata.get(USAGE) or {}
        sampled: int | None = episode.num_sampled_tokens
        if not sampled:
            sampled = usage.get("completion_tokens", 0 if not episode.turns else None)
        prompt = usage.get("prompt_tokens")
        if prompt is None and any(t.context_ids for t in episode.turns):
            prompt = _prompt_tokens(episode)
        infos = [t.info for t in episode.turns if "tool_use_counter" in t.info]
        calls = int(infos[-1]["tool_use_counter"]) if infos else None
        return cls(
            env_id=episode.env_id,
            episode_id=episode.episode_id,
            task=episode.group_id or episode.episode_id,
            success=episode.success,
            total_reward=episode.total_reward,
            turns=len(episode.turns),
            sampled_tokens=sampled,
            prompt_tokens=prompt,
            tool_calls=calls,
            tool_errors=calls - int(infos[-1].get("tool_success_counter", 0)) if calls is not None else None,
            stop_reason=episode.stop_reason.value,
            failed=episode.failed,
            error=episode.error,
        )


def _prompt_tokens(episode: Episode) -> int:
    """Tokens of all turns' prompts, each counted as often as it was sent."""
    total = length = 0
    for turn in episode.turns:
        length = len(turn.context_ids) + (0 if turn.new_sequence else length)
        total += length
        length += len(turn.response_ids)
    return total


def iter_episodes(path: str | Path) -> Iterator[Episode]:
    """The episodes of a run folder's ``episodes.jsonl``, one at a time; a last line cut short is left out.

    Raises:
        ValueError: a whole line that holds no episode.
    """
    path = Path(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Episode.from_dict(json.loads(line)["episode"])
            except (ValueError, KeyError, TypeError) as e:
                raise ValueError(f"{path}, line {number}: no episode: {e}") from e


def drop_failed(path: str | Path) -> int:
    """Takes the failed episodes out of ``episodes.jsonl``, to be played again; returns how many there were."""
    path = Path(path)
    if not path.exists():
        return 0
    new = path.with_suffix(".tmp")
    dropped = 0
    with path.open("rb") as file, new.open("wb") as out:
        for line in file:
            if not line.endswith(b"\n"):
                break
            row: dict[str, Any] = json.loads(line)
            if Episode.from_dict({**row["episode"], "turns": []}).failed:
                dropped += 1
            else:
                out.write(line)
    if dropped:
        new.replace(path)
    else:
        new.unlink()
    return dropped

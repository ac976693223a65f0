"""From an episode to the dict that OpenRLHF's samples generator reads, and the record that travels beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gem_core.episode import Episode, StopReason, TokenSequence
from gem_openrlhf.settings import GemSettings

#: The key of our own part of the dict; OpenRLHF's samples generator does not look at it.
KEY = "gem"


@dataclass(frozen=True)
class EpisodeRecord:
    """What turn-level credit assignment and metrics need of an episode."""

    env_id: str
    episode_id: str
    group_id: str
    #: One a turn.
    rewards: tuple[float, ...]
    stop_reason: StopReason
    success: bool | None
    #: Out of the loss and of every statistic.
    masked: bool
    sampled_tokens: int

    @property
    def total_reward(self) -> float:
        return sum(self.rewards)


@dataclass(frozen=True)
class SequenceRecord:
    """One training sequence (a row of an ``Experience``) and the turns in it."""

    #: None: a row that only fills up a batch.
    episode: EpisodeRecord | None
    #: ``(turn, first, end)``: the turn's sampled tokens are ``observation_tokens[first:end]``. Empty where masked.
    turns: tuple[tuple[int, int, int], ...] = ()
    #: The last sequence of its episode; the first one carries the others in the dict's ``more``.
    last: bool = True


def masked(episode: Episode, settings: GemSettings) -> bool:
    """Whether the episode's tokens stay out of the loss."""
    if episode.failed:
        return settings.failed_loss == "mask"
    return episode.truncated and not episode.terminated and settings.truncated_loss == "mask"


def response(
    episode: Episode,
    settings: GemSettings,
    *,
    prompt: str = "",
    label: Any = None,
    logprobs: bool = True,
    filler_token: int = 0,
    extra_logs: dict[str, float] | None = None,
) -> dict[str, Any]:
    """The dict that an ``AgentExecutor`` returns for one episode.

    OpenRLHF's own keys describe the episode's first training sequence. ``dict["gem"]`` holds its
    :class:`SequenceRecord` and, in ``more``, a dict of the same form for each further sequence, which only
    :class:`gem_openrlhf.samples.GemSamplesGenerator` reads.

    Args:
        episode: A finished episode.
        settings: Decides what is masked.
        prompt: Given back as OpenRLHF gave it.
        label: Given back as OpenRLHF gave it.
        logprobs: Whether OpenRLHF asked for log probabilities.
        filler_token: OpenRLHF wants at least two tokens a sample: an episode without any gets two of these, masked.
        extra_logs: Further numbers for OpenRLHF's log.
    """
    hidden = masked(episode, settings)
    sequences = [s for s in episode.to_sequences() if s.response_ids]
    record = EpisodeRecord(
        env_id=episode.env_id,
        episode_id=episode.episode_id,
        group_id=episode.group_id,
        rewards=tuple(episode.rewards),
        stop_reason=episode.stop_reason or StopReason.TERMINATED,
        success=episode.success,
        masked=hidden or not sequences,
        sampled_tokens=episode.num_sampled_tokens,
    )
    common: dict[str, Any] = {
        "prompt": prompt,
        "label": label,
        "images": None,
        "mm_train_inputs": None,
        "reward": record.total_reward,
        # OpenRLHF's dynamic filtering takes groups whose mean score lies strictly between two bounds.
        "scores": float(episode.success) if episode.success is not None else record.total_reward,
        "extra_logs": {**episode_logs(episode), **(extra_logs or {})},
    }
    if not sequences:
        return {
            **common,
            "observation_tokens": [filler_token] * 2,
            "action_ranges": [],
            "rollout_log_probs": [0.0] * 2 if logprobs else None,
            "truncated": False,
            KEY: {"record": SequenceRecord(record), "more": []},
        }
    rows = []
    for k, sequence in enumerate(sequences):
        last = k == len(sequences) - 1
        turns = () if hidden else turn_ranges(sequence)
        rows.append(
            {
                **common,
                "observation_tokens": sequence.input_ids,
                "action_ranges": [(first, end) for _, first, end in turns],
                "rollout_log_probs": [0.0] * len(sequence.prompt_ids) + sequence.logprobs if logprobs else None,
                "truncated": last and _cut(episode),
                KEY: {"record": SequenceRecord(record, turns, last), "more": []},
            }
        )
    rows[0][KEY]["more"] = rows[1:]
    return rows[0]


def turn_ranges(sequence: TokenSequence) -> tuple[tuple[int, int, int], ...]:
    """``(turn, first, end)`` of each turn that sampled a token, as positions in ``sequence.input_ids``."""
    ranges: list[tuple[int, int, int]] = []
    start = len(sequence.prompt_ids)
    for position, turn in enumerate(sequence.turn_index, start):
        if turn < 0:
            continue
        if ranges and ranges[-1][0] == turn:
            ranges[-1] = (turn, ranges[-1][1], position + 1)
        else:
            ranges.append((turn, position, position + 1))
    return tuple(ranges)


def episode_logs(episode: Episode) -> dict[str, float]:
    """What OpenRLHF averages over the batch and logs; the same keys for every episode."""
    return {
        "gem/success": float(bool(episode.success)),
        "gem/return": episode.total_reward,
        "gem/turns": float(len(episode.turns)),
        "gem/failed": float(episode.failed),
    }


def _cut(episode: Episode) -> bool:
    """OpenRLHF calls a sample truncated when a token limit ended it."""
    cut = bool(episode.turns) and episode.turns[-1].finish_reason == "length"
    return cut or episode.stop_reason is StopReason.CONTEXT_LENGTH

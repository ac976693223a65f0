"""From an episode to what RL2 keeps of it."""

from __future__ import annotations

from typing import Any

from gem_core.episode import Episode, StopReason, TokenSequence
from gem_rl2.settings import GemSettings

StateDict = dict[str, list[Any]]


def masked(episode: Episode, settings: GemSettings) -> bool:
    """Whether the episode's tokens stay out of the loss."""
    if episode.failed:
        return settings.failed_loss == "mask"
    return episode.truncated and not episode.terminated and settings.truncated_loss == "mask"


def state_dicts(episode: Episode, settings: GemSettings, filler_token: int) -> list[StateDict]:
    """The episode's training sequences as RL2's ``state_dicts``: one, unless the context was rebuilt or rewritten.

    Each holds five lists over all tokens of the sequence, prompt included: ``states`` (ids), ``actions`` (the id where
    sampled, else 0), ``action_mask`` (1 where sampled), ``logps`` and ``rewards`` (each turn's on its last token).

    Args:
        episode: A finished episode.
        settings: Decides what is masked.
        filler_token: For an episode without a sampled token (a failed reset). RL2 wants at least one sequence an
            episode, and drops a sequence's first action: it gets two tokens, masked.
    """
    sequences = [s for s in episode.to_sequences() if s.response_ids]
    if not sequences:
        return [
            {
                "states": [filler_token] * 2,
                "actions": [0, 0],
                "action_mask": [0, 0],
                "logps": [0.0, 0.0],
                "rewards": [0.0, 0.0],
            }
        ]
    keep = 0 if masked(episode, settings) else 1
    return [_state_dict(s, keep) for s in sequences]


def _state_dict(sequence: TokenSequence, keep: int) -> StateDict:
    n = len(sequence.prompt_ids)
    mask = sequence.response_mask
    return {
        "states": sequence.input_ids,
        "actions": [0] * n + [t if m else 0 for t, m in zip(sequence.response_ids, mask, strict=True)],
        "action_mask": [0] * n + [m * keep for m in mask],
        "logps": [0.0] * n + list(sequence.logprobs),
        "rewards": [0.0] * n + list(sequence.rewards),
    }


def metrics(episode: Episode) -> dict[str, list[float]]:
    """What RL2 averages over the batch under these names. The ``gem/`` ones are the same for every episode.

    ``rewards`` is the episode's return over all turns and sequences; RL2's own bookkeeping adds up the last turn of
    each sequence only, and its dynamic filtering reads the same number.
    """
    out = {
        "rewards": [episode.total_reward],
        "turns": [float(len(episode.turns))],
        "gem/success": [float(bool(episode.success))],
        "gem/failed": [float(episode.failed)],
        **{f"gem/stop/{r.value}": [float(episode.stop_reason is r)] for r in StopReason},
    }
    if episode.turns:  # RL2 divides by the number of entries
        out["response_length"] = [float(len(t.response_ids)) for t in episode.turns]
        out["length_clip_ratio"] = [float(t.finish_reason == "length") for t in episode.turns]
    return out

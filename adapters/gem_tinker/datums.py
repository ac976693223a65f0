"""From episodes to the API's training data (``tinker.Datum``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tinker import types

from gem_core.episode import Episode, TokenSequence

FloatArray = npt.NDArray[np.float32]


def datums(
    episodes: Sequence[Episode], advantages: Sequence[Sequence[float] | npt.NDArray[Any]], *, scale: float = 1.0
) -> list[types.Datum]:
    """One datum for each training sequence that has a sampled token; one an episode, unless its context was rewritten.

    Args:
        episodes: Finished episodes with log probabilities.
        advantages: One value a turn for each episode, as :func:`gem_core.advantages.estimate_episodes` returns them.
        scale: Multiplies them; Tinker's losses sum over tokens, so ``1 / tokens`` makes a mean of it.

    Raises:
        ValueError: the lengths differ, or the engine gave no log probabilities.
    """
    if len(episodes) != len(advantages):
        raise ValueError(f"advantages of {len(advantages)} episodes for {len(episodes)}")
    out = []
    for episode, per_turn in zip(episodes, advantages, strict=True):
        if len(per_turn) != len(episode.turns):
            raise ValueError(
                f"episode {episode.episode_id!r}: {len(per_turn)} advantages for {len(episode.turns)} turns"
            )
        values = [float(a) * scale for a in per_turn]
        out += [datum(s, values) for s in episode.to_sequences() if any(s.response_mask)]
    return out


def datum(sequence: TokenSequence, per_turn: Sequence[float]) -> types.Datum:
    """A sequence as inputs of the losses ``importance_sampling`` and ``ppo``.

    All fields have shape (tokens - 1,): position ``i`` predicts token ``i + 1``. Environment tokens have advantage and
    log probability 0.0, which takes them out of the loss.
    """
    if not sequence.has_logprobs:
        raise ValueError(
            f"episode {sequence.episode_id!r} has no log probabilities; Tinker's losses compare with the sampler's"
        )
    tokens = sequence.input_ids
    before = len(sequence.prompt_ids)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": _tensor(np.asarray(tokens[1:], dtype=np.int64)),
            "logprobs": _tensor(_padded(before, sequence.logprobs)),
            "advantages": _tensor(_padded(before, sequence.spread(per_turn))),
        },
    )


def sampled_mask(sequence: TokenSequence) -> npt.NDArray[np.bool_]:
    """Which of a datum's positions predict a sampled token, shape (tokens - 1,)."""
    return np.asarray([0] * len(sequence.prompt_ids) + sequence.response_mask, dtype=bool)[1:]


def logprob_differences(episodes: Sequence[Episode], outputs: Sequence[Any]) -> FloatArray:
    """``log p(trainer) - log p(sampler)`` of every sampled token, shape (sampled tokens,).

    Args:
        episodes: Those that the datums were made of.
        outputs: ``loss_fn_outputs`` of a forward pass over those datums, in their order.
    """
    sequences = [s for e in episodes for s in e.to_sequences() if any(s.response_mask)]
    if len(sequences) != len(outputs):
        raise ValueError(f"{len(outputs)} outputs for {len(sequences)} sequences")
    parts = [np.zeros(0, dtype=np.float32)]
    for sequence, output in zip(sequences, outputs, strict=True):
        mask = sampled_mask(sequence)
        trainer = np.asarray(output["logprobs"].data, dtype=np.float32)
        parts.append(trainer[mask] - _padded(len(sequence.prompt_ids), sequence.logprobs)[mask])
    return np.concatenate(parts)


def _padded(before: int, values: Sequence[float]) -> FloatArray:
    return np.asarray([0.0] * before + list(values), dtype=np.float32)[1:]


def _tensor(values: npt.NDArray[Any]) -> types.TensorData:
    return types.TensorData.from_numpy(values)

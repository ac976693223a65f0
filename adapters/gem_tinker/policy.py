"""``TinkerPolicy``: a Tinker sampling client as a policy of :mod:`gem_core.rollout`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from tinker import types

from gem_core.policies import Sampling
from gem_core.session import Generation, Prompt


class TinkerPolicy:
    """Samples each prompt with a request of its own; the server batches them.

    Args:
        client: A ``tinker.SamplingClient``.
        stop_token_ids: End a turn, such as ``[tokenizer.eos_token_id]``.
        sampling: Temperature and the like. Log probabilities that are to be trained on need temperature 1, ``top_p`` 1
            and ``top_k`` 0: the trainer knows no other distribution.
        max_tokens: Of one turn, where the session's limits say nothing.
        seed: With one, an answer depends on it, the episode's id and the turn only (as far as the server is
            deterministic). None = the server draws.
    """

    def __init__(
        self,
        client: Any,
        *,
        stop_token_ids: Sequence[int],
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not stop_token_ids:
            raise ValueError("stop_token_ids is empty, so no turn would end; give [tokenizer.eos_token_id]")
        self._client = client
        self._stop = list(map(int, stop_token_ids))
        self._sampling = sampling or Sampling()
        self._max_tokens = max_tokens
        self._seed = seed

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`gem_core.rollout.AsyncPolicy`."""
        return list(await asyncio.gather(*map(self._one, prompts)))

    async def _one(self, prompt: Prompt) -> Generation:
        response = await self._client.sample_async(
            prompt=types.ModelInput.from_ints(prompt.token_ids),
            num_samples=1,
            sampling_params=self._params(prompt),
        )
        sequence = response.sequences[0]
        tokens, logprobs = list(sequence.tokens), sequence.logprobs
        return Generation(
            token_ids=tokens,
            logprobs=None if logprobs is None else list(logprobs),
            finish_reason="length" if sequence.stop_reason == "length" else "stop",
        )

    def _params(self, prompt: Prompt) -> types.SamplingParams:
        how = self._sampling
        rooms = [n for n in (prompt.max_new_tokens, self._max_tokens) if n is not None]
        seed = None
        if self._seed is not None:
            seed = random.Random(f"{self._seed}:{prompt.episode_id}:{prompt.turn}").randrange(2**31)
        return types.SamplingParams(
            max_tokens=min(rooms) if rooms else None,
            seed=seed,
            stop=self._stop,
            temperature=0.0 if how.greedy else how.temperature,
            top_k=how.top_k or -1,
            top_p=how.top_p,
        )

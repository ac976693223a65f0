"""A local vLLM engine as a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gem_core.episode import FinishReason
from gem_core.policies import Sampling
from gem_core.session import Generation, Prompt


class VLLMPolicy:
    """Samples with vLLM's asynchronous engine: every prompt joins the running batch at once.

    The log probabilities are of the model's distribution before top-k and top-p, at the given temperature only where
    the engine is told so (``logprobs_mode="processed_logprobs"``, set here).

    Args:
        model: A Hugging Face id or folder.
        sampling: See :class:`~gem_core.policies.Sampling`.
        max_new_tokens: For each turn, where the session's limits do not say less.
        seed: A turn's draws follow from it, the episode's id and the turn.
        engine: Further arguments of ``vllm.AsyncEngineArgs``.

    Raises:
        ImportError: vLLM is missing.
    """

    def __init__(
        self,
        model: str,
        *,
        sampling: Sampling | None = None,
        max_new_tokens: int = 1024,
        seed: int = 0,
        engine: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import vllm
        except ModuleNotFoundError as e:
            raise ImportError(f"backend 'vllm' needs the package {e.name!r}: pip install vllm", name=e.name) from e
        self._vllm = vllm
        self.sampling, self.max_new_tokens, self.seed = sampling or Sampling(), max_new_tokens, seed
        self._arguments = {"model": model, "logprobs_mode": "processed_logprobs", **(engine or {})}
        self._engine: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`~gem_core.rollout.AsyncPolicy`."""
        return list(await asyncio.gather(*(self._answer(p) for p in prompts)))

    async def _answer(self, prompt: Prompt) -> Generation:
        if not prompt.token_ids:
            raise ValueError("vLLM is given token ids: give the session a renderer")
        final = None
        request = f"{prompt.episode_id}:{prompt.turn}:{len(prompt.token_ids)}"
        stream = self._ready().generate({"prompt_token_ids": prompt.token_ids}, self._parameters(prompt), request)
        async for output in stream:
            final = output
        assert final is not None, "the engine's stream ends with an output"
        result = final.outputs[0]
        ids = list(result.token_ids)
        logprobs = None
        if result.logprobs is not None:
            logprobs = [float(at[token].logprob) for at, token in zip(result.logprobs, ids, strict=True)]
        finish: FinishReason = result.finish_reason if result.finish_reason in ("length", "abort") else "stop"
        return Generation(ids, logprobs, finish)

    def _parameters(self, prompt: Prompt) -> Any:
        import hashlib

        how = self.sampling
        room = self.max_new_tokens if prompt.max_new_tokens is None else min(prompt.max_new_tokens, self.max_new_tokens)
        draw = hashlib.blake2b(f"{self.seed}:{prompt.episode_id}:{prompt.turn}".encode(), digest_size=4).digest()
        return self._vllm.SamplingParams(
            temperature=0.0 if how.greedy else how.temperature,
            top_p=how.top_p,
            top_k=how.top_k or -1,
            max_tokens=room,
            logprobs=0,
            seed=int.from_bytes(draw, "big") >> 1,
        )

    def _ready(self) -> Any:
        """The engine of the running loop; it belongs to the one that started it."""
        loop = asyncio.get_running_loop()
        if self._engine is None:
            arguments = self._vllm.AsyncEngineArgs(**self._arguments)
            self._engine = self._vllm.AsyncLLMEngine.from_engine_args(arguments)
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("a VLLMPolicy stays in the event loop that it first generated in; make another one")
        return self._engine

    def close(self) -> None:
        """Ends the engine and its processes."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None

"""The actor's vLLM engine as a policy of the rollout loop."""

from __future__ import annotations

import copy
from typing import Any, cast

from gem_core.episode import FinishReason
from gem_core.session import Generation, Prompt


class VllmPolicy:
    """Samples through ``ActorBase.generate``, token ids in and token ids out.

    Args:
        actor: An Oat actor after ``init``.
        sampling_params: vLLM's; a prompt with less room gets a copy with a lower ``max_tokens``.
    """

    def __init__(self, actor: Any, sampling_params: Any) -> None:
        self._actor = actor
        self._params = sampling_params

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`gem_core.policies.Policy`."""
        if not prompts:
            return []
        params = [self._params_for(p) for p in prompts]
        outputs = self._actor.generate([list(p.token_ids) for p in prompts], params)
        if len(outputs) != len(prompts):
            raise RuntimeError(f"vLLM gave {len(outputs)} answers to {len(prompts)} prompts")
        return [read_output(o) for o in outputs]

    def _params_for(self, prompt: Prompt) -> Any:
        params = copy.copy(self._params)
        if prompt.max_new_tokens is not None:
            params.max_tokens = min(params.max_tokens, prompt.max_new_tokens)
        return params


def read_output(output: Any) -> Generation:
    """A vLLM ``RequestOutput`` with one completion.

    Raises:
        ValueError: a sampled token has no log probability.
    """
    completion = output.outputs[0]
    ids = list(completion.token_ids)
    logprobs = completion.logprobs
    if logprobs is None or len(logprobs) != len(ids):
        raise ValueError("vLLM gave no log probability for each sampled token: SamplingParams.logprobs must be set")
    reason = completion.finish_reason if completion.finish_reason in ("length", "abort") else "stop"
    return Generation(
        ids,
        [float(at[token].logprob) for token, at in zip(ids, logprobs, strict=True)],
        cast(FinishReason, reason),
    )

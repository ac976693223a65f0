"""The part of vLLM 0.8 that Oat's actors use, sampled by transformers. CI only, where no build of vLLM can be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from gem_core.policies import Sampling, TransformersPolicy
from gem_core.session import Prompt
from vllm.outputs import CompletionOutput, Logprob, RequestOutput

__version__ = "0.8.4"


@dataclass
class SamplingParams:
    """vLLM's, with its defaults."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = 16
    logprobs: int | None = None


class LLM:
    """A model that answers batches of token ids, and takes new weights."""

    def __init__(self, model: str, *, dtype: str = "float32", seed: int = 0, **options: Any) -> None:
        from oat.utils.distributed import WorkerWrap
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.options = options
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModelForCausalLM.from_pretrained(model, torch_dtype=getattr(torch, dtype)).eval()
        self._seed = seed
        self._calls = 0
        self.llm_engine = SimpleNamespace(reset_prefix_cache=lambda: None)
        if not dist.is_initialized():  # as vLLM's worker does
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

        worker: Any = WorkerWrap()
        worker.model_config = SimpleNamespace(dtype=getattr(torch, dtype))
        worker.model_runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load_weights))
        self._worker = worker

    def get_tokenizer(self) -> Any:
        return self._tokenizer

    def generate(
        self,
        prompts: Sequence[str] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        prompt_token_ids: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> list[RequestOutput]:
        """One completion for each prompt, given as token ids."""
        if prompts is not None or prompt_token_ids is None:
            raise NotImplementedError("the stand-in takes prompt_token_ids")
        if not isinstance(sampling_params, Sequence):
            sampling_params = [sampling_params or SamplingParams()] * len(prompt_token_ids)
        first = sampling_params[0]
        self._calls += 1
        policy = TransformersPolicy(
            self._model,
            self._tokenizer,
            sampling=Sampling(
                temperature=first.temperature or 1.0,
                top_p=first.top_p,
                top_k=max(0, first.top_k),
                greedy=first.temperature == 0,
            ),
            seed=self._seed,
            keep_cache=False,
        )
        asked = [
            Prompt(list(ids), [], p.max_tokens, f"{self._calls}:{i}", 0)
            for i, (ids, p) in enumerate(zip(prompt_token_ids, sampling_params, strict=True))
        ]
        return [
            RequestOutput(
                prompt_token_ids=p.token_ids,
                outputs=[
                    CompletionOutput(
                        text=self._tokenizer.decode(g.token_ids, skip_special_tokens=True),
                        token_ids=list(g.token_ids),
                        logprobs=[{t: Logprob(lp)} for t, lp in zip(g.token_ids, g.logprobs or (), strict=True)],
                        finish_reason=g.finish_reason,
                    )
                ],
            )
            for p, g in zip(asked, policy.generate(asked), strict=True)
        ]

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return [getattr(self._worker, method)(*args)]

    def sleep(self, level: int = 1) -> None: ...

    def wake_up(self) -> None: ...

    def _load_weights(self, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
        own = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, weight in weights:
                own[name].copy_(weight)

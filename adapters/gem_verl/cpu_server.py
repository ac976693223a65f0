"""The rollout server of :mod:`gem_verl.cpu`: :class:`gem_core.policies.TransformersPolicy` behind verl's interface."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from gem_core.policies import Sampling, TransformersPolicy
from gem_core.session import Prompt

Request = tuple[Prompt, Sampling, "asyncio.Future[TokenOutput]"]

#: A batch starts when no request has come for this long (s), so that the episodes of a step stay one batch,
QUIET_S = 0.03
#: and no later than this after its first one.
GATHER_S = 1.0


@ray.remote(num_cpus=0)
class CPUServer:
    """One model in one actor; requests that wait while a batch runs form the next batch.

    The key-value cache is kept from turn to turn where verl passes the episode's own request id on
    (``rollout.full_determinism=True``); with verl's default, a new id for every turn, each prompt is computed anew.
    """

    def __init__(self, path: str, seed: int = 0) -> None:
        import transformers

        torch.set_num_threads(1)
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path)
        self.seed = seed
        self.global_steps = 0
        self.waiting: list[Request] = []
        self.policies: dict[Sampling, TransformersPolicy] = {}
        self.runner: asyncio.Task[None] | None = None
        self.open = asyncio.Event()  # cleared between an abort and the resumption
        self.open.set()
        self.aborting = False

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: Any = None,
        video_data: Any = None,
        **_: Any,
    ) -> TokenOutput:
        if image_data or video_data:
            raise ValueError("the CPU rollout server takes text only")
        await self.open.wait()
        future: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        limit = sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens")
        prompt = Prompt(list(prompt_ids), [], limit, episode_id=request_id, turn=0)
        temperature = float(sampling_params.get("temperature", 1.0))
        top_k = int(sampling_params.get("top_k", 0) or 0)
        sampling = Sampling(
            temperature=temperature or 1.0,
            top_p=float(sampling_params.get("top_p", 1.0)),
            top_k=max(0, top_k),
            greedy=temperature == 0.0,
        )
        self.waiting.append((prompt, sampling, future))
        if self.runner is None or self.runner.done():
            self.runner = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self.waiting:
            await self._gather()
            sampling = self.waiting[0][1]
            batch = [r for r in self.waiting if r[1] == sampling]
            self.waiting = [r for r in self.waiting if r[1] != sampling]
            try:
                outputs = await asyncio.to_thread(self._generate, [p for p, _, _ in batch], sampling)
            except Exception as e:  # each waiter gets the error; the server goes on
                outputs = [e] * len(batch)
            if self.aborting:
                outputs = [_interrupted(o) for o in outputs]
            for (_, _, future), output in zip(batch, outputs, strict=True):
                if future.cancelled():
                    continue
                if isinstance(output, Exception):
                    future.set_exception(output)
                else:
                    future.set_result(output)

    async def _gather(self) -> None:
        """Waits until the requests of one wave are here."""
        end = time.monotonic() + GATHER_S
        seen = 0
        while seen < len(self.waiting) and time.monotonic() < end and not self.aborting:
            seen = len(self.waiting)
            await asyncio.sleep(QUIET_S)

    def _generate(self, prompts: list[Prompt], sampling: Sampling) -> list[TokenOutput | Exception]:
        if sampling not in self.policies:
            self.policies[sampling] = TransformersPolicy(self.model, self.tokenizer, sampling=sampling, seed=self.seed)
        policy = self.policies[sampling]
        return [
            TokenOutput(
                token_ids=list(g.token_ids),
                log_probs=list(g.logprobs or ()),
                stop_reason="completed",
                extra_fields={"global_steps": self.global_steps},
            )
            for g in policy.generate(prompts)
        ]

    async def update_weights(self, state: dict[str, torch.Tensor], global_steps: int | None) -> None:
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        tied = set(getattr(self.model, "_tied_weights_keys", None) or [])
        if unexpected or set(missing) - tied:
            raise ValueError(f"weight update: missing {missing}, unexpected {unexpected}")
        for policy in self.policies.values():
            policy.reset()
        if global_steps is not None:
            self.global_steps = global_steps

    async def set_global_steps(self, global_steps: int) -> None:
        self.global_steps = global_steps

    async def abort_all_requests(self, **_: Any) -> None:
        """Interrupts what runs, and holds new requests until :meth:`resume_generation`.

        A batch that has begun is not stopped half-way: the second half of what it samples is dropped, as if it had
        been, and verl's client resumes each generation under the next weights.
        """
        self.open.clear()
        self.aborting = True
        if self.runner is not None and not self.runner.done():
            await self.runner
        self.aborting = False

    async def resume_generation(self, **_: Any) -> None:
        self.open.set()

    # What verl asks of a GPU server between rollouts; a CPU server keeps nothing that could be released.
    async def wake_up(self, **_: Any) -> None: ...
    async def sleep(self, **_: Any) -> None: ...
    async def clear_kv_cache(self, **_: Any) -> None: ...
    async def release_kv_cache(self, **_: Any) -> None: ...
    async def resume_kv_cache(self, **_: Any) -> None: ...
    async def start_profile(self, **_: Any) -> None: ...
    async def stop_profile(self, **_: Any) -> None: ...


def _interrupted(output: TokenOutput | Exception) -> TokenOutput | Exception:
    if isinstance(output, Exception):
        return output
    kept = len(output.token_ids) // 2
    return TokenOutput(
        token_ids=output.token_ids[:kept],
        log_probs=(output.log_probs or [])[:kept],
        stop_reason="aborted",
        extra_fields=output.extra_fields,
    )


def _server_name(replica_rank: int) -> str:
    return f"gem_cpu_server_{replica_rank}"


class CPUReplica(RolloutReplica):  # type: ignore[misc]  # verl has no type information
    """verl's handle on one server."""

    async def launch_servers(self) -> None:
        name = _server_name(self.replica_rank)
        server: Any = CPUServer  # ray.remote made it an actor class
        handle = server.options(name=name).remote(self.model_config.path, seed=self.replica_rank)
        self.servers = [handle]
        self._server_handle = handle
        self._server_address = name


class ServerAdapter(BaseRollout):  # type: ignore[misc]  # verl has no type information
    """Lives in the trainer's process and pushes its weights into the server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **_: Any
    ) -> None:
        if wire_format != "named_tensors":
            raise ValueError(f"the CPU rollout server takes named tensors, not {wire_format!r}")
        state = {name: tensor.detach().cpu().clone() for name, tensor in weights}
        await ray.get_actor(_server_name(0)).update_weights.remote(state, global_steps)

"""The stand-in's server: SGLang's HTTP interface, as far as RL2 uses it, over a transformers model on a CPU.

Tokens and log probabilities are the model's own (:class:`gem_core.policies.TransformersPolicy`), under the weights that
were sent last.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import torch
from aiohttp import web

from gem_core.policies import Sampling, TransformersPolicy
from gem_core.session import Generation, Prompt
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils import MultiprocessingSerializer
from sglang.srt.weight_sync.tensor_bucket import unflatten

KNOWN = {"temperature", "max_new_tokens", "top_p", "top_k", "stop", "no_stop_trim", "skip_special_tokens"}


class Server:
    """One model; requests that wait while a batch runs form the next batch."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.waiting: list[tuple[Prompt, Sampling, asyncio.Future[Generation]]] = []
        self.runner: asyncio.Task[None] | None = None
        self.open = asyncio.Event()  # cleared between a pause and the continuation
        self.open.set()
        self.pausing = False
        self.requests = 0
        self.weight_version = 0
        # Two updates, or an update and a batch, do not run at once.
        self.lock = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/health", self._ok)
        app.router.add_get("/health_generate", self._ok)
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/update_weights_from_tensor", self.update_weights)
        app.router.add_post("/pause_generation", self.pause)
        app.router.add_post("/continue_generation", self.resume)
        # There is no memory to hand back; the trainer only wants an answer.
        app.router.add_post("/release_memory_occupation", self._ok)
        app.router.add_post("/resume_memory_occupation", self._ok)
        return app

    async def _ok(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True})

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        params = {k: v for k, v in (body.get("sampling_params") or {}).items() if v is not None}
        if unknown := sorted(set(params) - KNOWN):
            return web.json_response({"error": f"unknown sampling parameters {unknown}"}, status=400)
        if params.get("stop"):
            return web.json_response(
                {"error": "stop strings are not served; end-of-turn tokens end an answer"}, status=400
            )
        await self.open.wait()
        self.requests += 1
        prompt = Prompt(
            list(body["input_ids"]), [], params.get("max_new_tokens", 128), episode_id=str(self.requests), turn=0
        )
        temperature = float(params.get("temperature", 1.0))
        sampling = Sampling(
            temperature=temperature or 1.0,
            top_p=float(params.get("top_p", 1.0)),
            top_k=max(0, int(params.get("top_k", 0))),
            greedy=temperature == 0.0,
        )
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self.waiting.append((prompt, sampling, future))
        if self.runner is None or self.runner.done():
            self.runner = asyncio.create_task(self._run())
        try:
            generation = await future
        except ValueError as e:
            return web.json_response({"error": str(e)}, status=400)
        return web.json_response(self._answer(prompt, generation, params))

    def _answer(self, prompt: Prompt, generation: Generation, params: dict[str, Any]) -> dict[str, Any]:
        ids = list(generation.token_ids)
        shown = ids[:-1] if generation.finish_reason == "stop" and not params.get("no_stop_trim") else ids
        return {
            "text": self.tokenizer.decode(shown, skip_special_tokens=params.get("skip_special_tokens", True)),
            "meta_info": {
                "id": prompt.episode_id,
                "finish_reason": {"type": generation.finish_reason},
                "prompt_tokens": len(prompt.token_ids),
                "completion_tokens": len(ids),
                "weight_version": self.weight_version,
                "output_token_logprobs": [[lp, t, None] for lp, t in zip(generation.logprobs or (), ids, strict=True)],
            },
        }

    async def _run(self) -> None:
        await asyncio.sleep(0.005)  # let the requests of one wave gather
        while self.waiting:
            sampling = self.waiting[0][1]
            batch = [r for r in self.waiting if r[1] == sampling]
            self.waiting = [r for r in self.waiting if r[1] != sampling]
            async with self.lock:
                try:
                    outputs: list[Any] = await asyncio.to_thread(self._sample, [p for p, _, _ in batch], sampling)
                except Exception as e:  # each waiter gets the error; the server goes on
                    outputs = [e] * len(batch)
            for (_, _, future), output in zip(batch, outputs, strict=True):
                if future.cancelled():
                    continue
                if isinstance(output, Exception):
                    future.set_exception(output)
                else:
                    future.set_result(_interrupted(output) if self.pausing else output)

    def _sample(self, prompts: list[Prompt], sampling: Sampling) -> list[Generation]:
        policy = TransformersPolicy(self.model, self.tokenizer, sampling=sampling, keep_cache=False)
        return policy.generate(prompts)

    async def pause(self, request: web.Request) -> web.Response:
        """Interrupts what runs, and holds new requests until :meth:`resume`.

        A batch that has begun is not stopped half-way: the second half of what it samples is dropped, as if it had
        been.
        """
        self.open.clear()
        self.pausing = True
        if self.runner is not None and not self.runner.done():
            await self.runner
        self.pausing = False
        return await self._ok(request)

    async def resume(self, request: web.Request) -> web.Response:
        self.open.set()
        return await self._ok(request)

    async def update_weights(self, request: web.Request) -> web.Response:
        body = await request.json()
        (serialized,) = body["serialized_named_tensors"]  # one for each tensor-parallel rank
        named = read_tensors(serialized, body.get("load_format"))
        async with self.lock:
            state = dict(self.model.named_parameters(remove_duplicate=False))
            state.update(self.model.named_buffers())
            if unknown := sorted(n for n, _ in named if n not in state):
                return web.json_response({"error": f"no parameter is called {', '.join(unknown)}"}, status=400)
            with torch.no_grad():
                for name, tensor in named:
                    state[name].copy_(tensor)
            self.weight_version += 1
        return await self._ok(request)


def read_tensors(serialized: Any, load_format: str | None) -> list[tuple[str, torch.Tensor]]:
    """The named tensors of an update in either of RL2's formats."""
    if load_format == "flattened_bucket":
        bucket = MultiprocessingSerializer.deserialize(serialized)
        return unflatten(bucket["flattened_tensor"], bucket["metadata"])
    named = MultiprocessingSerializer.deserialize(base64.b64decode(serialized))
    return [(name, MultiprocessingSerializer.deserialize(shards.values[0])) for name, shards in named]


def _interrupted(output: Generation) -> Generation:
    kept = len(output.token_ids) // 2
    return Generation(list(output.token_ids)[:kept], list(output.logprobs or ())[:kept], "abort")


def main() -> None:
    import transformers

    args = ServerArgs(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dtype = "auto" if args.dtype == "auto" else getattr(torch, args.dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model_path, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model_path)

    async def app() -> web.Application:
        return Server(model, tokenizer).app()

    web.run_app(app(), host=args.host, port=args.port, print=None, access_log=None)


if __name__ == "__main__":
    main()

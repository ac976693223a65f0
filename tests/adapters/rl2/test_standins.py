"""The stand-ins of ``ci/rl2_cpu`` do what they stand for."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
import torch.distributed as dist
from flash_attn.flash_attn_interface import _flash_attn_varlen_backward, _flash_attn_varlen_forward
from rl2_helpers import serving
from sglang.srt.model_executor.model_runner import LocalSerializedTensor
from sglang.srt.utils import MultiprocessingSerializer
from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket

from gem_core.tiny import load_tiny

pytestmark = pytest.mark.l1
LENGTHS = [6, 2, 10, 4]  # even, as RL2 pads them
HEADS, KEY_HEADS, SIZE = 4, 2, 8


def pack() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    n = sum(LENGTHS)
    q = torch.randn(n, HEADS, SIZE, generator=generator)
    k, v = torch.randn(2, n, KEY_HEADS, SIZE, generator=generator)
    dout = torch.randn(n, HEADS, SIZE, generator=generator)
    cu = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return q, k, v, dout, cu


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """PyTorch's attention, sequence by sequence, keys repeated for their query heads."""
    outputs = []
    for a, b in zip(torch.tensor([0, *LENGTHS]).cumsum(0)[:-1], torch.tensor(LENGTHS).cumsum(0), strict=True):
        heads = [x[a:b].transpose(0, 1)[None] for x in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal, scale=0.3, enable_gqa=True)
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


def backward(q: Any, k: Any, v: Any, dout: Any, out: Any, lse: Any, cu_q: Any, cu_k: Any, causal: bool) -> Any:
    grads = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    _flash_attn_varlen_backward(dout, q, k, v, out, lse, *grads, cu_q, cu_k, 10, 10, 0.0, 0.3, causal)
    return grads


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attention_equals_plain_attention(causal: bool) -> None:
    q, k, v, dout, cu = pack()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = plain(*leaves, causal=causal)
    expected.backward(dout)
    out, lse, _, _ = _flash_attn_varlen_forward(q, k, v, cu, cu, 10, 10, 0.0, 0.3, causal)
    torch.testing.assert_close(out, expected.detach(), atol=1e-6, rtol=1e-5)
    assert lse.shape == (HEADS, sum(LENGTHS))
    for got, leaf in zip(backward(q, k, v, dout, out, lse, cu, cu, causal), leaves, strict=True):
        torch.testing.assert_close(got, leaf.grad, atol=1e-5, rtol=1e-5)


def test_flash_attention_over_parts_of_the_keys_adds_up() -> None:
    """What a ring of several ranks asks of it: partial outputs merge by their log-sum-exp, partial gradients add."""
    q, k, v, dout, _ = pack()
    n = sum(LENGTHS)
    cu = torch.tensor([0, n], dtype=torch.int32)
    whole, lse, _, _ = _flash_attn_varlen_forward(q, k, v, cu, cu, n, n, 0.0, 0.3, False)
    parts, grads = [], []
    for part in (slice(0, 7), slice(7, n)):
        cu_k = torch.tensor([0, part.stop - part.start], dtype=torch.int32)
        parts.append(_flash_attn_varlen_forward(q, k[part], v[part], cu, cu_k, n, n, 0.0, 0.3, False)[:2])
        grads.append(backward(q, k[part], v[part], dout, whole, lse, cu, cu_k, False))
    merged = sum(torch.exp(p_lse - lse).T[..., None] * out for out, p_lse in parts)
    torch.testing.assert_close(merged, whole, atol=1e-6, rtol=1e-5)
    dq, dk, dv = backward(q, k, v, dout, whole, lse, cu, cu, False)
    torch.testing.assert_close(grads[0][0] + grads[1][0], dq, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat([g[1] for g in grads]), dk, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat([g[2] for g in grads]), dv, atol=1e-5, rtol=1e-5)


def test_ring_flash_attention_runs_on_it_over_a_ring_of_one() -> None:
    from ring_flash_attn.llama3_flash_attn_varlen import llama3_flash_attn_varlen_func
    from ring_flash_attn.zigzag_ring_flash_attn_varlen import zigzag_ring_flash_attn_varlen_func

    q, k, v, dout, cu = pack()
    group = dist.group.WORLD
    arguments: list[tuple[Any, dict[str, Any]]] = [
        (zigzag_ring_flash_attn_varlen_func, {"cu_seqlens": cu, "max_seqlen": 10}),
        (
            llama3_flash_attn_varlen_func,
            {
                "cu_seqlens_q": cu,
                "cu_seqlens_k": cu,
                "max_seqlen_q": 10,
                "max_seqlen_k": 10,
                "heads_k_stride": 1,
                "local_k_slice": slice(0, sum(LENGTHS)),
            },
        ),
    ]
    reference = [x.clone().requires_grad_() for x in (q, k, v)]
    plain(*reference).backward(dout)
    for function, named in arguments:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = function(*leaves, softmax_scale=0.3, causal=True, group=group, **named)
        torch.testing.assert_close(out, plain(q, k, v), atol=1e-6, rtol=1e-5)
        out.backward(dout)
        for leaf, other in zip(leaves, reference, strict=True):
            torch.testing.assert_close(leaf.grad, other.grad, atol=1e-5, rtol=1e-5)


def logprobs(model: Any, prompt: list[int], sampled: list[int], temperature: float = 1.0) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *sampled]])).logits[0, len(prompt) - 1 : -1]
    table = torch.log_softmax(logits.float() / temperature, -1)
    return [float(table[i, t]) for i, t in enumerate(sampled)]


async def ask(session: aiohttp.ClientSession, url: str, ids: list[int], **params: Any) -> dict[str, Any]:
    body = {"input_ids": ids, "sampling_params": params, "return_logprob": True}
    async with session.post(f"{url}/generate", json=body) as answer:
        return await answer.json()  # type: ignore[no-any-return]


def test_the_server_answers_with_the_models_own_tokens_and_takes_new_weights(tiny_folder: Path) -> None:
    model, tokenizer = load_tiny(tiny_folder)
    served, _ = load_tiny(tiny_folder)
    prompts = [tokenizer.encode(t, add_special_tokens=False) for t in ("Guess a number", "higher", "3 4 5 lower")]

    async def check(session: aiohttp.ClientSession, url: str) -> None:
        answers = await asyncio.gather(*(ask(session, url, p, temperature=0.7, max_new_tokens=6) for p in prompts))
        for prompt, answer in zip(prompts, answers, strict=True):
            meta = answer["meta_info"]
            sampled = [t for _, t, _ in meta["output_token_logprobs"]]
            assert 1 <= len(sampled) == meta["completion_tokens"] <= 6
            assert meta["finish_reason"]["type"] == ("stop" if sampled[-1] == tokenizer.eos_token_id else "length")
            assert [lp for lp, _, _ in meta["output_token_logprobs"]] == pytest.approx(
                logprobs(model, prompt, sampled, 0.7), abs=1e-4
            )

    async def main() -> None:
        async with serving(served, tokenizer) as (url, server), aiohttp.ClientSession() as session:
            await check(session, url)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.05 * torch.randn_like(parameter))
            with pytest.raises(AssertionError):
                await check(session, url)
            named = list(model.named_parameters())
            bucket = FlattenedTensorBucket(named)
            flat = {"flattened_tensor": bucket.get_flattened_tensor(), "metadata": bucket.get_metadata()}
            text = MultiprocessingSerializer.serialize(flat, output_str=True)
            update = {"serialized_named_tensors": [text], "load_format": "flattened_bucket", "flush_cache": False}
            async with session.post(f"{url}/update_weights_from_tensor", json=update) as answer:
                assert answer.status == 200
            await check(session, url)
            with torch.no_grad():
                model.lm_head.weight.mul_(1.5)
            shard = MultiprocessingSerializer.serialize(model.lm_head.weight)
            one = MultiprocessingSerializer.serialize([("lm_head.weight", LocalSerializedTensor(values=[shard]))])
            update = {"serialized_named_tensors": [base64.b64encode(one).decode()], "flush_cache": True}
            async with session.post(f"{url}/update_weights_from_tensor", json=update) as answer:
                assert answer.status == 200
            await check(session, url)
            other = MultiprocessingSerializer.serialize([("no.such", LocalSerializedTensor(values=[shard]))])
            update["serialized_named_tensors"] = [base64.b64encode(other).decode()]
            async with session.post(f"{url}/update_weights_from_tensor", json=update) as answer:
                assert answer.status == 400
            assert server.weight_version == 2

    asyncio.run(main())


def test_a_pause_interrupts_what_runs_and_holds_the_rest(tiny_folder: Path) -> None:
    model, tokenizer = load_tiny(tiny_folder)
    prompt = tokenizer.encode("Guess", add_special_tokens=False)

    async def main() -> None:
        async with serving(model, tokenizer) as (url, server), aiohttp.ClientSession() as session:
            running = asyncio.create_task(ask(session, url, prompt, max_new_tokens=200))
            while not server.requests:
                await asyncio.sleep(0.001)
            async with session.post(f"{url}/pause_generation") as answer:
                assert answer.status == 200
            meta = (await running)["meta_info"]
            assert meta["finish_reason"]["type"] == "abort"
            held = asyncio.create_task(ask(session, url, prompt, max_new_tokens=2))
            await asyncio.sleep(0.1)
            assert not held.done()
            async with session.post(f"{url}/continue_generation") as answer:
                assert answer.status == 200
            assert (await held)["meta_info"]["finish_reason"]["type"] in ("stop", "length")

    asyncio.run(main())

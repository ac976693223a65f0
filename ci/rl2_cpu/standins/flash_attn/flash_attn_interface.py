"""``_flash_attn_varlen_forward`` and ``_flash_attn_varlen_backward`` with flash-attn 2.8's signatures and results.

The backward is the one of the FlashAttention-2 paper (arXiv 2307.08691, algorithm 2) without its blocks, so it takes
the log-sum-exp of the whole row where the keys given are only a part of it, as ring attention needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention within each sequence of a pack.

    Args:
        q: Shape (tokens, heads, size); k and v: (keys, key heads, size).
        cu_seqlens_q: Borders of the sequences, shape (sequences + 1,); cu_seqlens_k: of their keys.

    Returns:
        Output (tokens, heads, size), log-sum-exp of the scaled scores (heads, tokens) in float32, and two empty
        tensors.
    """
    _refuse(dropout_p, window_size_left, window_size_right, softcap, alibi_slopes, block_table, leftpad_k, seqused_k)
    out, lse = torch.zeros_like(q), q.new_zeros((q.shape[1], q.shape[0]), dtype=torch.float32)
    for a, b, c, d in _sequences(cu_seqlens_q, cu_seqlens_k):
        scores = _scores(q[a:b], k[c:d], softmax_scale, causal)
        row = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - row[..., None])
        out[a:b] = torch.einsum("hqk,khd->qhd", weights, _repeat(v[c:d], q)).to(out.dtype)
        lse[:, a:b] = row
    return out, lse, q.new_empty(0), q.new_empty(0)


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """Fills ``dq``, ``dk`` and ``dv`` (shapes of q, k, v). Returns the rows' sums of ``dout * out``."""
    _refuse(dropout_p, window_size_left, window_size_right, softcap, alibi_slopes, None, None, None)
    delta = (dout.float() * out.float()).sum(-1).T  # (heads, tokens)
    for grad in (dq, dk, dv):
        grad.zero_()
    for a, b, c, d in _sequences(cu_seqlens_q, cu_seqlens_k):
        weights = torch.exp(_scores(q[a:b], k[c:d], softmax_scale, causal) - softmax_lse[:, a:b, None])
        do = dout[a:b].float()
        dv[c:d] = _gather(torch.einsum("hqk,qhd->khd", weights, do), v).to(dv.dtype)
        dp = torch.einsum("qhd,khd->hqk", do, _repeat(v[c:d], q))
        ds = weights * (dp - delta[:, a:b, None]) * softmax_scale
        dq[a:b] = torch.einsum("hqk,khd->qhd", ds, _repeat(k[c:d], q)).to(dq.dtype)
        dk[c:d] = _gather(torch.einsum("hqk,qhd->khd", ds, q[a:b].float()), k).to(dk.dtype)
    return delta


def _unused(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("this stand-in for flash-attn has the variable-length functions only")


# Imported by parts of ring-flash-attn that RL2 does not use.
_flash_attn_forward = _flash_attn_backward = _unused


def _sequences(cu_q: Tensor, cu_k: Tensor) -> Iterator[tuple[int, int, int, int]]:
    for (a, b), (c, d) in zip(itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), strict=True):
        if b > a and d > c:
            yield a, b, c, d


def _scores(q: Tensor, k: Tensor, scale: float, causal: bool) -> Tensor:
    """Scaled scores (heads, queries, keys) in float32; the causal mask is aligned at the lower right corner."""
    scores = torch.einsum("qhd,khd->hqk", q.float(), _repeat(k, q)) * scale
    if causal:
        allowed = torch.ones(scores.shape[1:], dtype=torch.bool).tril(scores.shape[2] - scores.shape[1])
        scores = scores.masked_fill(~allowed, float("-inf"))
    return scores


def _repeat(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values of grouped-query attention, once for each query head."""
    return x.float().repeat_interleave(q.shape[1] // x.shape[1], dim=1)


def _gather(grad: Tensor, x: Tensor) -> Tensor:
    """The sum over the query heads that share a key head."""
    return grad.unflatten(1, (x.shape[1], -1)).sum(2)


def _refuse(
    dropout_p: float, left: int, right: int, softcap: float, alibi: Any, table: Any, leftpad: Any, used: Any
) -> None:
    if dropout_p or left >= 0 or right >= 0 or softcap or any(x is not None for x in (alibi, table, leftpad, used)):
        raise NotImplementedError("this stand-in for flash-attn has no dropout, windows, soft cap, ALiBi or paging")

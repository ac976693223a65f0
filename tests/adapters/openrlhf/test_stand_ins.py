"""flash-attn's index functions as CI has them, against a plain implementation."""

from __future__ import annotations

import pytest
import torch
from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.l1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 3), st.booleans(), st.integers(1, 4))
def test_unpadding_and_padding_are_what_they_say(lengths: list[int], more: int, left: bool, width: int) -> None:
    longest = max(lengths) + more
    values = torch.randn(len(lengths), longest, width)
    mask = torch.zeros(len(lengths), longest, dtype=torch.long)
    for i, n in enumerate(lengths):
        mask[i, longest - n :] = 1 if left else 0
        mask[i, :n] |= 0 if left else 1
    flat, positions, borders, most, counts = unpad_input(values, mask)

    expected = [(i * longest + k, values[i, k]) for i in range(len(lengths)) for k in range(longest) if mask[i, k]]
    assert positions.tolist() == [p for p, _ in expected]
    assert torch.equal(flat, torch.stack([v for _, v in expected]))
    assert counts.tolist() == lengths
    assert most == max(lengths)
    assert borders.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert borders.dtype == torch.int32

    back = pad_input(flat, positions, len(lengths), longest)
    assert torch.equal(back, values * mask.unsqueeze(-1))
    assert torch.equal(index_first_axis(rearrange(values, "b s ... -> (b s) ..."), positions), flat)


def test_padding_passes_gradients() -> None:
    values = torch.randn(3, 2, requires_grad=True)
    pad_input(values, torch.tensor([0, 2, 3]), 2, 2).square().sum().backward()
    assert values.grad is not None
    assert torch.allclose(values.grad, 2 * values)


def test_the_broadcast_carries_the_tensors() -> None:
    import threading

    from openrlhf.utils.distributed_util import stateless_init_process_group
    from vllm.utils.network_utils import get_open_port

    port = get_open_port()
    sent = [torch.randn(3, 2), torch.randn(5).bfloat16()]
    received: list[torch.Tensor] = []

    def receiver() -> None:
        group = stateless_init_process_group("127.0.0.1", port, 1, 2, "cpu")
        for like in sent:
            tensor = torch.empty_like(like)
            group.broadcast(tensor, src=0)
            received.append(tensor)

    thread = threading.Thread(target=receiver)
    thread.start()
    group = stateless_init_process_group("127.0.0.1", port, 0, 2, "cpu")
    for tensor in sent:
        group.broadcast(tensor, src=0)
    thread.join(60)
    assert all(torch.equal(a, b) for a, b in zip(sent, received, strict=True))

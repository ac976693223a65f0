"""Taking padding out of a batch and putting it back; the values are checked against a plain implementation."""

from __future__ import annotations

import torch
from einops import rearrange

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def index_first_axis(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``values[index]`` over the first axis."""
    return values[index]


def unpad_input(
    values: torch.Tensor, attention_mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """Drops the padding of a (batch, tokens, ...) tensor.

    Returns:
        The kept values (kept, ...), their positions in the flattened batch, the rows' borders (batch + 1,), the longest
        row's length and all rows' lengths.
    """
    kept = attention_mask.bool()
    lengths = kept.sum(dim=1, dtype=torch.int32)
    borders = torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=torch.int32)])
    positions = kept.flatten().nonzero().squeeze(1)
    return values.flatten(0, 1)[positions], positions, borders, int(lengths.max()), lengths


def pad_input(values: torch.Tensor, positions: torch.Tensor, batch: int, length: int) -> torch.Tensor:
    """The inverse: zeros where there was padding."""
    out = values.new_zeros((batch * length, *values.shape[1:]))
    out = out.index_copy(0, positions, values)
    return out.unflatten(0, (batch, length))

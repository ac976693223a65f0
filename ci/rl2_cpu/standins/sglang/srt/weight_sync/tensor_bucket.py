"""Many tensors of one type in one flat tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class FlattenedTensorMetadata:
    name: str
    shape: torch.Size
    dtype: torch.dtype
    start_idx: int
    end_idx: int
    numel: int


class FlattenedTensorBucket:
    def __init__(self, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
        self._metadata = []
        start = 0
        for name, tensor in named_tensors:
            end = start + tensor.numel()
            self._metadata.append(FlattenedTensorMetadata(name, tensor.shape, tensor.dtype, start, end, tensor.numel()))
            start = end
        self._flat = torch.cat([t.flatten() for _, t in named_tensors])

    def get_flattened_tensor(self) -> torch.Tensor:
        return self._flat

    def get_metadata(self) -> list[FlattenedTensorMetadata]:
        return self._metadata


def unflatten(flat: torch.Tensor, metadata: list[FlattenedTensorMetadata]) -> list[tuple[str, torch.Tensor]]:
    """The named tensors of a bucket."""
    return [(m.name, flat[m.start_idx : m.end_idx].reshape(m.shape).to(m.dtype)) for m in metadata]

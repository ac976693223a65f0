"""How tensors travel from the trainer to the server."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch


class MultiprocessingSerializer:
    """SGLang's sends handles of GPU memory; between CPU processes the values themselves travel."""

    @staticmethod
    def serialize(obj: Any, output_str: bool = False) -> Any:
        buffer = io.BytesIO()
        torch.save(obj, buffer)
        data = buffer.getvalue()
        return base64.b64encode(data).decode("ascii") if output_str else data

    @staticmethod
    def deserialize(data: Any) -> Any:
        if isinstance(data, str):
            data = base64.b64decode(data)
        return torch.load(io.BytesIO(data), weights_only=False)  # from this machine's own trainer

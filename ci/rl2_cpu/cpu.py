"""Lets RL2's trainer run in one process on a CPU.

RL2 names CUDA in its code, not in its configuration. What is put in place here, and nothing else: PyTorch's calls about
the current CUDA device answer with the CPU or do nothing, process groups for ``nccl`` use gloo, device meshes of
``cuda`` are of ``cpu``, what a rank sends to itself is copied, FSDP broadcasts parameters that lie on the CPU, and
transformers does not look for a GPU before it accepts ``flash_attention_2`` (RL2 replaces the attention function).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

STANDINS = Path(__file__).resolve().parent / "standins"


def install() -> None:
    """Call before RL2 is imported."""
    import torch
    import torch.distributed as dist
    import torch.distributed.fsdp._init_utils as fsdp_init
    import transformers
    import transformers.modeling_flash_attention_utils as flash_attention_utils

    if str(STANDINS) not in sys.path:
        sys.path.insert(0, str(STANDINS))
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu  # type: ignore[assignment,return-value]
    # Three functions, because torch.compile's tables tell them apart by identity.
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.empty_cache = lambda: None

    init_process_group, init_device_mesh = dist.init_process_group, dist.device_mesh.init_device_mesh

    def process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        init_process_group("gloo" if backend == "nccl" else backend, *args, **kwargs)

    def device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return init_device_mesh("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    dist.init_process_group = process_group
    dist.init_device_mesh = dist.device_mesh.init_device_mesh = device_mesh

    dist.batch_isend_irecv = _to_itself(dist.batch_isend_irecv)
    # FSDP wants the parameters on a GPU before it broadcasts them; gloo takes them from the CPU.
    fsdp_init._check_module_states_for_sync_module_states = lambda module_states: None

    transformers.PreTrainedModel._flash_attn_2_can_dispatch = lambda self, is_init_check=False: True
    flash_attention_utils.is_flash_attn_2_available = lambda: True


def _to_itself(batch_isend_irecv: Any) -> Any:
    """gloo, unlike NCCL, has no connection from a rank to itself, which a ring of one rank sends over."""
    import torch.distributed as dist

    def batch(operations: list[Any]) -> list[Any]:
        rank = dist.get_rank()
        own = [o for o in operations if o.peer == rank]
        sent = [o.tensor for o in own if o.op is dist.isend]
        received = [o.tensor for o in own if o.op is dist.irecv]
        for source, target in zip(sent, received, strict=True):
            target.copy_(source)
        others = [o for o in operations if o.peer != rank]
        return batch_isend_irecv(others) if others else []

    return batch

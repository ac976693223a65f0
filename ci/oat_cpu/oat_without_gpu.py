"""What stands in for a GPU under Oat. CI only.

- ``torch.cuda``'s device functions answer for the CPU: as many devices as ``OAT_CPU_DEVICES`` says (1);
- DeepSpeed's fused Adam, a CUDA kernel, is torch's AdamW;
- Oat's check of torch's version, which reads 2.13 as older than 2.6, is corrected;
- vLLM's worker receives weights in a tensor on the CPU;
- where there is no vLLM or Launchpad, the modules in ``standins`` are found under their names.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from pathlib import Path
from typing import Any


def install() -> None:
    """Called once, before Oat is imported."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("USE_TF", "0")
    if any(importlib.util.find_spec(name) is None for name in ("vllm", "launchpad")):
        sys.path.append(str(Path(__file__).parent / "standins"))  # last, so that what is installed wins
    _cuda_is_the_cpu()
    import deepspeed.ops.adam
    import torch

    deepspeed.ops.adam.FusedAdam = torch.optim.AdamW
    import oat.utils.distributed as distributed

    distributed.WorkerWrap.update_weight = _update_weight
    new_group = distributed._new_process_group_helper

    def renamed(*args: Any, **kwargs: Any) -> Any:
        # Oat compares versions as text, in which torch 2.13 is older than 2.6.
        if "pg_options" in kwargs and "backend_options" in inspect.signature(new_group).parameters:
            kwargs["backend_options"] = kwargs.pop("pg_options")
        return new_group(*args, **kwargs)

    distributed._new_process_group_helper = renamed


def _cuda_is_the_cpu() -> None:
    import torch

    devices = int(os.environ.get("OAT_CPU_DEVICES", "1"))
    torch.cuda.device_count = lambda: devices
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.memory_allocated = lambda *args, **kwargs: 0
    # One function each: torch's compiler keeps a table of them in which each may be listed once.
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.empty_cache = lambda: None


def _update_weight(
    self: Any, name: str, dtype: str, shape: Any, cuda_ipc_handles: Any = None, empty_cache: bool = False
) -> None:
    """``WorkerWrap.update_weight`` with the tensor on the CPU."""
    import torch
    from oat.utils.distributed import torch_type_codec

    del cuda_ipc_handles, empty_cache
    weight = torch.empty(shape, dtype=torch_type_codec(dtype))
    torch.distributed.broadcast(weight, 0, group=self._model_update_group)
    self.model_runner.model.load_weights(weights=[(name, weight)])

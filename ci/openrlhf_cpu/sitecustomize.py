"""Lets OpenRLHF's real trainer run on a CPU, in every process of a run that has this folder on ``PYTHONPATH``.

Used by CI and by the example's CPU mode only; on GPUs nothing of it is loaded. What it stands in for, each after the
module in question was imported:

* ``torch.cuda``: the calls that OpenRLHF makes with no regard for the device (current_device, synchronize, ...).
* NCCL between trainer and engine: a broadcast over vLLM's stateless process group, which carries the same tensors.
* ``device="cuda"`` in OpenRLHF's weight update inside the engine.
* vLLM's oneDNN and SGL matrix products, which re-pack the weights at load, so that an update would have nothing to load
  into; torch's take their place.

flash-attn's index functions are in ``flash_attn/``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Device(str):
    """``"cpu"`` wherever a device is asked for, and an index where OpenRLHF formats ``cuda:{current_device()}``."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "0"


def _torch_cuda(cuda: Any) -> None:
    if cuda.is_available():
        return
    cuda.current_device = lambda: _Device("cpu")
    cuda.current_stream = lambda *a, **k: None
    for name in ("empty_cache", "ipc_collect", "manual_seed_all", "set_device", "synchronize"):
        setattr(cuda, name, lambda *a, **k: None)


class StoreBroadcast:
    """The part of NCCL's communicator that weight updates use."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        mine = self.group.rank == src
        sent = self.group.broadcast_obj(tensor.detach().cpu().clone() if mine else None, src)
        if not mine:
            tensor.copy_(sent)


def _distributed_util(module: Any) -> None:
    def stateless_init_process_group(
        master_address: str, master_port: int, rank: int, world_size: int, device: Any
    ) -> StoreBroadcast:
        from vllm.distributed.utils import StatelessProcessGroup

        return StoreBroadcast(
            StatelessProcessGroup.create(host=master_address, port=master_port, rank=rank, world_size=world_size)
        )

    module.stateless_init_process_group = stateless_init_process_group


def _worker_wrap(module: Any) -> None:
    def update_weight(self: Any, name: str, dtype: Any, shape: Sequence[int], empty_cache: bool = False) -> None:
        import torch

        weight = torch.empty(tuple(shape), dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    module.WorkerWrap.update_weight = update_weight


def _custom_ops(module: Any) -> None:
    module._supports_onednn = False


def _layers_utils(module: Any) -> None:
    module.check_cpu_sgl_kernel = lambda *a, **k: False


AFTER_IMPORT: dict[str, Callable[[Any], None]] = {
    "torch.cuda": _torch_cuda,
    "openrlhf.utils.distributed_util": _distributed_util,
    "openrlhf.trainer.ray.vllm_worker_wrap": _worker_wrap,
    "vllm._custom_ops": _custom_ops,
    "vllm.model_executor.layers.utils": _layers_utils,
}


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, after: Callable[[Any], None]) -> None:
        self.inner, self.after = inner, after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.after(module)

    def __getattr__(self, name: str) -> Any:  # get_source and the like, for tracebacks and inspect
        return getattr(self.inner, name)


class StandInFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        after = AFTER_IMPORT.get(fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if after else None
        if spec is None or after is None:
            return None
        spec.loader = _Loader(spec.loader, after)
        return spec


if os.environ.get("OPENRLHF_CPU") == "1":
    sys.meta_path.insert(0, StandInFinder())

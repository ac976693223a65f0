"""verl's whole trainer on a CPU, for tests and laptops: a platform and a rollout server.

Load it with ``VERL_USE_EXTERNAL_MODULES=gem_verl.cpu VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda`` and
``actor_rollout_ref.rollout.name=gem_cpu`` (``examples/train_verl_rebn.py`` sets all of it). It is slow and serves one
process; on GPUs verl's own platform with vLLM or SGLang is the default and this module is never imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.utils import model as verl_model
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.replica import RolloutReplicaRegistry

ROLLOUT_NAME = "gem_cpu"


class _CPUModule:
    """``torch.cpu`` with the names of ``torch.cuda`` that verl reads."""

    _ZERO = frozenset({"memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"})
    _NOTHING = frozenset(
        {"empty_cache", "ipc_collect", "reset_peak_memory_stats", "manual_seed", "manual_seed_all", "set_device"}
    )
    _VALUES: ClassVar[dict[str, Callable[..., Any]]] = {
        "get_device_name": lambda *a, **k: "CPU",
        "mem_get_info": lambda *a, **k: (8 << 30, 16 << 30),
        "get_rng_state": lambda *a, **k: torch.get_rng_state(),
        "set_rng_state": lambda state, *a, **k: torch.set_rng_state(state),
    }

    def __getattr__(self, name: str) -> Any:
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name in self._ZERO:
            return lambda *a, **k: 0
        if name in self._NOTHING:
            return lambda *a, **k: None
        if name in self._VALUES:
            return self._VALUES[name]
        raise AttributeError(f"verl asked the CPU platform for torch.<device>.{name}, which gem_verl.cpu does not have")


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):  # type: ignore[misc]  # verl has no type information
    """verl's platform interface on a CPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _CPUModule()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        # verl would ask torch for the groups "cpu:gloo,cpu:gloo", which torch refuses; a group that exists already is
        # taken as it is.
        import torch.distributed as dist

        address = os.environ.get("DIST_INIT_METHOD")
        if not dist.is_initialized() and "RANK" in os.environ and (address or "MASTER_ADDR" in os.environ):
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # verl's resource check counts GPUs and NPUs only; ray_init.num_gpus=1 makes one up

    def ray_noset_envvars(self) -> list[str]:
        return []

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_gpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def _load_replica() -> type:
    from gem_verl.cpu_server import CPUReplica

    return CPUReplica


def _load_critic(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """verl's ``load_valuehead_model`` asks for FlashAttention 2, whatever the configuration says."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )


verl_model.load_valuehead_model = _load_critic
RolloutReplicaRegistry.register(ROLLOUT_NAME, _load_replica)
# verl has no public way to add the class that pushes weights into a server; this and the critic's loader are the only
# two names used here that are not verl's public hooks.
rollout_base._ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = "gem_verl.cpu_server.ServerAdapter"

__all__ = ["ROLLOUT_NAME", "CPUPlatform"]

"""Many environments at once: in this thread, in threads, in processes, on other machines.

:func:`make_vec` builds a :class:`SyncVectorEnv` (lockstep, in the caller's thread) or an :class:`AsyncVectorEnv`
(free-running, with a lockstep ``step`` on top). Where environments run is chosen by name, and the same seeds and
actions give the same episodes everywhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gem_core.core import check_seed

if TYPE_CHECKING:
    from gem_core.registration import WrapperFn
    from gem_core.vector.async_vector_env import AsyncVectorEnv as AsyncVectorEnv
    from gem_core.vector.executors import VectorOptions as VectorOptions
    from gem_core.vector.sync_vector_env import SyncVectorEnv as SyncVectorEnv
    from gem_core.vector.types import AutoresetMode as AutoresetMode
    from gem_core.vector.types import EnvFault as EnvFault
    from gem_core.vector.vector_env import VectorEnv as VectorEnv

# Worker processes import this package: what needs NumPy loads when it is asked for.
_LAZY = {
    "AsyncVectorEnv": "gem_core.vector.async_vector_env",
    "AutoresetMode": "gem_core.vector.types",
    "EnvFault": "gem_core.vector.types",
    "SyncVectorEnv": "gem_core.vector.sync_vector_env",
    "VectorEnv": "gem_core.vector.vector_env",
    "VectorOptions": "gem_core.vector.executors",
}

__all__ = [
    "AsyncVectorEnv",
    "AutoresetMode",
    "EnvFault",
    "SyncVectorEnv",
    "VectorEnv",
    "VectorOptions",
    "make_vec",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_core.vector' has no attribute {name!r}")


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[WrapperFn] | None = None,
    vec_kwargs: Sequence[dict[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int = 0,
    **kwargs: Any,
) -> VectorEnv:
    """Builds several environments that step together; see :func:`gem_core.make_vec`.

    Environment ``i`` starts from ``seed + i``: its first reset is given that seed unless the caller gives one, and so
    is its constructor where it takes a ``seed``. Without ``async_mode`` and without an executor by name, environments
    run in the caller's thread.

    Raises:
        ValueError: an unknown id or argument, or ``vec_kwargs`` of another length than ``env_ids``.
    """
    from gem_core.registration import spec
    from gem_core.vector.async_vector_env import AsyncVectorEnv
    from gem_core.vector.executors import VectorOptions
    from gem_core.vector.host import EnvFactory
    from gem_core.vector.sync_vector_env import SyncVectorEnv

    ids = [env_ids] if isinstance(env_ids, str) else list(env_ids)
    if vec_kwargs is not None and len(vec_kwargs) != len(ids):
        raise ValueError(f"vec_kwargs has {len(vec_kwargs)} entries for {len(ids)} environments")
    check_seed(seed)
    names = {f.name for f in fields(VectorOptions)}
    chosen = {k: kwargs.pop(k) for k in list(kwargs) if k in names}
    options = VectorOptions(**chosen)
    factories = []
    for i, env_id in enumerate(ids):
        own = {**(vec_kwargs[i] if vec_kwargs is not None else {}), **kwargs}
        first_seed = own.get("seed", seed + i)
        factories.append(EnvFactory(spec(env_id), own, tuple(wrappers or ()), first_seed))
    canonical = [f.env_id for f in factories]
    if not async_mode and options.executor in (None, "inline"):
        if options.limited:
            raise ValueError("a time limit needs executor='process' (or 'thread', or 'ray') or async_mode=True")
        return SyncVectorEnv(canonical, factories, options.mode)
    return AsyncVectorEnv(canonical, factories, options)

"""Environment factories as bytes that a worker can read, whatever modules it can import."""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gem_core.registration import EnvSpec

if TYPE_CHECKING:
    from gem_core.vector.host import EnvFactory


def pack(factory: EnvFactory, path: Sequence[str]) -> bytes:
    """Pickles a factory.

    With cloudpickle (which Ray and Gymnasium bring) lambdas, classes of a script or notebook, and whatever lives in a
    module that is not found on ``path`` travel by value; without it everything must be importable in the worker.

    Args:
        factory: What to pickle.
        path: Where the worker finds modules.

    Raises:
        ValueError: something cannot be pickled.
    """
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        cloudpickle = None
    if cloudpickle is None:
        try:
            return pickle.dumps(factory)
        except Exception as e:
            raise _cannot(factory, e, "; with cloudpickle installed, lambdas and local functions work too") from e
    with ExitStack() as stack:
        for module in _unreachable(factory, path):
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            data: bytes = cloudpickle.dumps(factory)
        except Exception as e:
            raise _cannot(factory, e, "") from e
    return data


def _cannot(factory: EnvFactory, error: Exception, hint: str) -> ValueError:
    return ValueError(
        f"{factory.env_id or factory.source!r} cannot be sent to a worker: {type(error).__name__}: {error}{hint}. "
        "Use executor='thread', or arguments and wrappers that can be pickled"
    )


def _unreachable(factory: EnvFactory, path: Sequence[str]) -> Iterator[types.ModuleType]:
    """Modules that what the factory calls comes from and that a worker would not find."""
    source = factory.source.entry_point if isinstance(factory.source, EnvSpec) else factory.source
    names: set[str] = set()
    todo: list[Any] = [source, *factory.wrappers]
    for thing in todo:
        if isinstance(thing, functools.partial):
            todo.append(thing.func)
        for owner in getattr(thing, "__mro__", (thing,)):
            names.add(getattr(owner, "__module__", None) or "")
    for name in names - {"", "__main__", "builtins"}:
        module = sys.modules.get(name)
        if module is not None and not _found(name, path):
            yield module


def _found(name: str, path: Sequence[str]) -> bool:
    """Whether an interpreter with this path finds the module (``importlib.util.find_spec`` would look into
    ``sys.modules`` of this one)."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "gem_core":
        return True
    if importlib.machinery.PathFinder.find_spec(top, list(path)) is None:
        return False
    where: Sequence[str] | None = list(path)
    for depth in range(name.count(".") + 1):
        part = ".".join(name.split(".")[: depth + 1])
        spec = importlib.machinery.PathFinder.find_spec(part, where)
        if spec is None:
            return False
        where = list(spec.submodule_search_locations or [])
    return True


@functools.lru_cache(maxsize=1)
def installed_path() -> tuple[str, ...]:
    """The path of a fresh interpreter: the installed packages without the script's folder or PYTHONPATH."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    code = "import json, sys; print(json.dumps(sys.path))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return tuple(p for p in json.loads(out.stdout) if p)

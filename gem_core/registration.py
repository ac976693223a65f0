"""Environment ids: ``register``, ``make``, ``make_vec``, ``list_envs``, ``spec``.

Nothing is imported before an id of its namespace is asked for. A namespace (the part before the colon) is served by a
:class:`Catalogue`; third parties add environments with :func:`register` from a function or module named in the
entry-point group ``gem_core.envs``.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from gem_core.core import Cost, Env, check_keywords

if TYPE_CHECKING:
    from gem_core.vector import VectorEnv

logger = logging.getLogger(__name__)

WrapperFn = Callable[[Env], Env]


@dataclass(frozen=True)
class EnvSpec:
    """How to build an environment, and what can be said of it without building it."""

    id: str
    #: ``"package.module:Class"`` or a callable that returns an :class:`~gem_core.core.Env`.
    entry_point: str | Callable[..., Env]
    kwargs: dict[str, Any] = field(default_factory=dict)
    #: Most turns an episode can take, where that is fixed.
    max_turns: int | None = None
    #: Smallest and largest return of an episode, where known.
    reward_range: tuple[float, float] | None = None
    #: The extra of ``pip install 'gem-adapters[EXTRA]'`` that brings what the environment needs.
    extra: str | None = None
    cost: Cost = "cheap"
    summary: str = ""

    @property
    def kind(self) -> str:
        """The namespace: ``game``, ``math``, ``rg``, ..."""
        return self.id.split(":", 1)[0] if ":" in self.id else ""


class Catalogue(Protocol):
    """A module (or object) that knows the ids of one or more namespaces."""

    def list_ids(self) -> Iterable[str]:
        """All ids with their namespace. May raise ImportError where an extra is missing."""

    def find_spec(self, env_id: str) -> EnvSpec | None:
        """The spec of an id, or None; works for parametric ids that :meth:`list_ids` does not list."""


#: Namespace -> module with ``list_ids`` and ``find_spec``; imported when an id of the namespace is asked for.
_CATALOGUES: dict[str, str] = {
    "game": "gem_core.envs.game_env.catalogue",
    "math": "gem_core.envs.dataset_catalogue",
    "code": "gem_core.envs.dataset_catalogue",
    "logic": "gem_core.envs.dataset_catalogue",
    "qa": "gem_core.envs.dataset_catalogue",
    "eval": "gem_core.envs.dataset_catalogue",
    "rg": "gem_core.envs.reasoning_gym_catalogue",
    "terminal": "gem_core.envs.terminal.catalogue",
    "multi": "gem_core.multiagent.catalogue",
    "textarena": "gem_core.bridges.catalogue",
    "verifiers": "gem_core.bridges.catalogue",
    "openenv": "gem_core.bridges.catalogue",
}
_REGISTRY: dict[str, EnvSpec] = {}
_ENTRY_POINT_GROUP = "gem_core.envs"
_entry_points_loaded = False
_lock = threading.RLock()
_VERSION = re.compile(r"-v(\d+)$")


def register(env_id: str, entry_point: str | Callable[..., Env], **kwargs: Any) -> None:
    """Adds an environment under ``env_id``.

    Args:
        env_id: Any non-empty string; ``namespace:Name-v0`` by convention.
        entry_point: ``"package.module:Class"``, a class, or a function that returns an :class:`Env`.
        **kwargs: Arguments for the entry point; those given to :func:`make` override them.

    Raises:
        ValueError: the id is taken, or the entry point is neither callable nor of the form ``module:name``.
    """
    register_spec(EnvSpec(id=env_id, entry_point=entry_point, kwargs=kwargs))


def register_spec(spec: EnvSpec) -> None:
    """As :func:`register`, with the descriptive fields of :class:`EnvSpec`."""
    if not spec.id or not isinstance(spec.id, str):
        raise ValueError(f"an environment id is a non-empty string, got {spec.id!r}")
    if isinstance(spec.entry_point, str):
        if spec.entry_point.count(":") != 1:
            raise ValueError(f"entry point {spec.entry_point!r} of {spec.id!r} is not of the form 'module:name'")
    elif not callable(spec.entry_point):
        raise ValueError(f"entry point of {spec.id!r} is neither callable nor 'module:name': {spec.entry_point!r}")
    with _lock:
        if _find(spec.id) is not None:
            raise ValueError(f"environment {spec.id!r} is already registered")
        _REGISTRY[spec.id] = spec


def unregister(env_id: str) -> None:
    """Removes an id added by :func:`register`."""
    with _lock:
        if env_id not in _REGISTRY:
            raise ValueError(f"environment {env_id!r} was not added by register()")
        del _REGISTRY[env_id]


def spec(env_id: str) -> EnvSpec:
    """Returns the spec of ``env_id``; an id without ``-vN`` means its newest version.

    Raises:
        ValueError: no such id; the message names the nearest ones.
    """
    if not isinstance(env_id, str):
        raise ValueError(f"an environment id is a string, got {env_id!r}")
    found = _find(env_id)
    if found is None:
        _load_entry_points()
        found = _find(env_id) or _find_newest(env_id)
    if found is None:
        raise ValueError(_unknown(env_id))
    return found


def list_envs(pattern: str | None = None) -> list[str]:
    """Returns all ids, sorted; ``pattern`` keeps those that match it as a glob or contain it.

    A namespace whose extra is not installed is left out.
    """
    _load_entry_points()
    ids = set(_REGISTRY)
    for module in dict.fromkeys(_CATALOGUES.values()):
        try:
            ids.update(_load_catalogue(module).list_ids())
        except ImportError as e:
            logger.debug("%s is not listed: %s", module, e)
    if pattern:
        low = pattern.lower()
        ids = {i for i in ids if fnmatch.fnmatchcase(i.lower(), low) or low in i.lower()}
    return sorted(ids)


def print_envs() -> None:
    """Prints every id with its entry point and arguments."""
    for env_id in list_envs():
        s = spec(env_id)
        print(f"{env_id}  {s.entry_point}  {s.kwargs}")


def make(env_id: str, **kwargs: Any) -> Env:
    """Builds the environment named ``env_id``.

    Args:
        env_id: See :func:`list_envs`.
        **kwargs: Override the registered arguments.

    Raises:
        ValueError: unknown id, unknown argument or a value that makes no sense; the message names it.
        ImportError: a package is missing; the message says which extra brings it.
    """
    return make_from_spec(spec(env_id), **kwargs)


def make_from_spec(s: EnvSpec, **kwargs: Any) -> Env:
    """As :func:`make`, for a spec that need not be registered in this process (workers get it from another)."""
    build = _resolve(s)
    check_keywords(build, kwargs, s.id)
    try:
        env = build(**{**s.kwargs, **kwargs})
    except ModuleNotFoundError as e:
        raise _missing(s, e) from e
    if not isinstance(env, Env):
        raise TypeError(f"the entry point of {s.id!r} returned {type(env).__name__}, not a gem_core.Env")
    env.env_id = s.id
    return env


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[WrapperFn] | None = None,
    vec_kwargs: Sequence[dict[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int = 0,
    **kwargs: Any,
) -> VectorEnv:
    """Builds several environments that step together; see :mod:`gem_core.vector`.

    Args:
        env_ids: One id, or one per environment (they may differ).
        wrappers: Applied in order to every environment, inside its worker.
        vec_kwargs: One dict of arguments per environment.
        async_mode: Free-running (``send``/``recv``) instead of lockstep.
        seed: Environment ``i`` starts from ``seed + i``.
        **kwargs: Arguments common to all; those named in :class:`gem_core.vector.VectorOptions` go to the executor.
    """
    from gem_core import vector

    return vector.make_vec(
        env_ids, wrappers=wrappers, vec_kwargs=vec_kwargs, async_mode=async_mode, seed=seed, **kwargs
    )


# -- lookups ------------------------------------------------------------------------------------------------------


def _load_catalogue(module: str) -> Catalogue:
    return cast(Catalogue, importlib.import_module(module))


def _find(env_id: str) -> EnvSpec | None:
    if env_id in _REGISTRY:
        return _REGISTRY[env_id]
    module = _CATALOGUES.get(env_id.split(":", 1)[0]) if ":" in env_id else None
    return _load_catalogue(module).find_spec(env_id) if module else None


def _find_newest(env_id: str) -> EnvSpec | None:
    """``game:Wordle`` means the highest ``game:Wordle-vN``, as in Gymnasium."""
    ids = set(_REGISTRY)
    module = _CATALOGUES.get(env_id.split(":", 1)[0]) if ":" in env_id else None
    if module:  # only the id's own namespace: listing some others imports large packages
        ids.update(_load_catalogue(module).list_ids())
    versions = [(int(m[1]), i) for i in ids if (m := _VERSION.search(i)) and i[: m.start()] == env_id]
    return _find(max(versions)[1]) if versions else None


def _load_entry_points() -> None:
    """Imports third-party modules of the entry-point group once; calls what is callable."""
    global _entry_points_loaded
    with _lock:
        if _entry_points_loaded:
            return
        _entry_points_loaded = True
        from importlib.metadata import entry_points

        for point in entry_points(group=_ENTRY_POINT_GROUP):
            try:
                loaded = point.load()
                if callable(loaded):
                    loaded()
            except Exception as e:  # one broken plug-in must not hide every other environment
                logger.warning(
                    "entry point %s of group %s failed: %s: %s",
                    point,
                    _ENTRY_POINT_GROUP,
                    type(e).__name__,
                    e,
                )


def _resolve(s: EnvSpec) -> Callable[..., Env]:
    if not isinstance(s.entry_point, str):
        return s.entry_point
    module_name, name = s.entry_point.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        raise _missing(s, e) from e
    try:
        return cast(Callable[..., Env], getattr(module, name))
    except AttributeError:
        raise ImportError(f"{module_name} has no {name!r}, the entry point of {s.id!r}") from None


def _missing(s: EnvSpec, error: ModuleNotFoundError) -> ImportError:
    hint = f": pip install 'gem-adapters[{s.extra}]'" if s.extra else ""
    return ImportError(f"{s.id} needs the package {error.name!r}{hint}", name=error.name)


def _unknown(env_id: str) -> str:
    ids = list_envs()
    lowered = {i.lower(): i for i in ids}
    near = [lowered[m] for m in difflib.get_close_matches(env_id.lower(), list(lowered), n=3, cutoff=0.6)]
    if not near:  # a bare name such as "wordle"
        near = [i for i in ids if env_id and env_id.lower() in i.lower()][:3]
    hint = f"; did you mean {', '.join(near)}?" if near else "; gem_core.list_envs() lists all"
    return f"no environment is called {env_id!r}{hint}"

"""The ids of the bridges: ``textarena:NAME``, ``verifiers:NAME``, ``openenv:URL_OR_NAME``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from gem_core.registration import EnvSpec


def list_ids() -> Iterable[str]:
    """TextArena's ids, where it is installed. The others' names are those of packages and servers, which nobody lists
    in one place; any of them can be made."""
    if importlib.util.find_spec("textarena") is None:
        return []
    from gem_core.bridges.textarena import names

    return [f"textarena:{name}" for name in names()]


def find_spec(env_id: str) -> EnvSpec | None:
    """Raises ImportError, with the ``pip install`` line, where the library is missing."""
    kind, _, name = env_id.partition(":")
    if not name:
        return None
    if kind == "textarena":
        from gem_core.bridges.textarena import names

        known = names()
        if name not in known:
            return None
        entry, summary, cost = "gem_core.bridges.textarena:make_textarena", "a game of TextArena", "cheap"
        kwargs = {"name": name}
    elif kind == "verifiers":
        entry, summary, cost = "gem_core.bridges.verifiers:VerifiersEnv", "an environment for verifiers", "waits"
        kwargs = {"name": name}
    elif kind == "openenv":
        entry, summary, cost = "gem_core.bridges.openenv:OpenEnvEnv", "an OpenEnv server", "waits"
        kwargs = {"server": name}
    else:
        return None
    return EnvSpec(id=env_id, entry_point=entry, kwargs=dict(kwargs), cost=cost, summary=summary)  # type: ignore[arg-type]

"""The repository's ``Sample`` and ``async_request`` as ``repository_contract.json`` records them, in our own words."""

from __future__ import annotations

import json
import sys
import types
from collections import defaultdict
from dataclasses import field, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CONTRACT: dict[str, Any] = json.loads(Path(__file__).with_name("repository_contract.json").read_text(encoding="utf-8"))

_DEFAULTS: dict[str, Any] = {
    "dict": dict,
    "str": str,
    "list": list,
    "int": int,
    "defaultdict": lambda: defaultdict(list),
}


def sample_class() -> Any:
    """A dataclass with the recorded fields and states."""
    status = Enum("Status", CONTRACT["status"])  # type: ignore[misc]
    fields = [
        (name, Any, field(default_factory=_DEFAULTS.get(kind, lambda: status["RUNNING"])))
        for name, kind in CONTRACT["sample_fields"].items()
    ]
    return make_dataclass("Sample", fields, namespace={"Status": status})


async def async_request(
    url: str, endpoint: str, method: str = "POST", max_trials: int = 3, retry_delay: int = 1, **kwargs: Any
) -> Any:
    """One request, its answer as JSON."""
    async with aiohttp.ClientSession() as session, session.request(method, f"{url}/{endpoint}", **kwargs) as response:
        response.raise_for_status()
        return await response.json()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts ``RL2.utils.communication`` in place, which rl-square 0.0.2 does not have."""
    module = types.ModuleType("RL2.utils.communication")
    module.async_request = async_request  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "RL2.utils.communication", module)

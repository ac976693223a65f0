"""``import gem_core`` stays light."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_importing_the_core_loads_nothing_heavy() -> None:
    code = (
        "import sys, json; before = set(sys.modules); import gem_core; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(out.stdout)
    heavy = {"torch", "transformers", "datasets", "reasoning_gym", "nltk", "numpy", "sympy", "httpx", "ray", "mcp"}
    assert not heavy & {m.split(".")[0] for m in loaded}
    assert [m for m in loaded if m.startswith("gem_core")] == ["gem_core", "gem_core.core", "gem_core.registration"]
    assert len(loaded) < 100


def test_making_a_game_loads_nothing_heavy() -> None:
    code = "import sys, gem_core; gem_core.make('game:GuessTheNumber-v0').reset(seed=1); print('numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_lazy_names_resolve_and_unknown_ones_do_not() -> None:
    import gem_core

    for name in gem_core.__all__:
        assert getattr(gem_core, name) is not None
    with pytest.raises(AttributeError, match="Nothing"):
        _ = gem_core.Nothing

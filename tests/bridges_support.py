"""Packages that only some environments of the matrix have."""

from __future__ import annotations

import importlib.util
import os

import pytest


def require(module: str) -> None:
    """Skips the test where ``module`` is missing, or fails it where ``GEM_REQUIRE_BRIDGES=1`` says it must be there."""
    if importlib.util.find_spec(module) is None:
        if os.environ.get("GEM_REQUIRE_BRIDGES") == "1":
            pytest.fail(f"the package {module!r} is missing and GEM_REQUIRE_BRIDGES=1 asks for it")
        pytest.skip(f"the package {module!r} is not installed (GEM_REQUIRE_BRIDGES=1 makes this a failure)")

"""Fixtures for every test."""

from __future__ import annotations

from typing import Any

import pytest
from support import build_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return build_tokenizer()

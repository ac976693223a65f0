"""The Oat versions that are supported."""

from __future__ import annotations

from gem_core._versions import require_framework

#: 0.2.4 is the first whose loss corrects for the sampler's log probabilities, and the last release there is.
SUPPORTED = ("0.2.4",)


def check_version() -> str:
    """Returns Oat's version; raises ImportError unless it is served."""
    return require_framework("oat-llm", "gem_oat", "oat", served=SUPPORTED)

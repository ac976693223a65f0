"""Which OpenRLHF releases are supported."""

from __future__ import annotations

from gem_core._versions import require_framework

#: Releases this adapter is tested with.
SUPPORTED = ("0.11.2",)


def check_version() -> str:
    """Returns OpenRLHF's version, without importing it; raises ImportError unless it is served."""
    return require_framework("openrlhf", "gem_openrlhf", "openrlhf", served=SUPPORTED)

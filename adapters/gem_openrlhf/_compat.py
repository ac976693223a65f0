"""Which OpenRLHF releases are supported, and what differs between them."""

from __future__ import annotations

from typing import Any

from gem_core._versions import require_framework

#: Releases this adapter is tested with.
SUPPORTED = ("0.11.2", "0.11.0", "0.10.4")


def check_version() -> str:
    """Returns OpenRLHF's version, without importing it; raises ImportError unless it is served."""
    return require_framework("openrlhf", "gem_openrlhf", "openrlhf", served=SUPPORTED)


def wants_logprobs(args: Any) -> bool:
    """Whether OpenRLHF asks the engine for log probabilities, for its importance-sampling correction."""
    advantage = args.algo.advantage
    if hasattr(advantage, "is_correction_level"):
        return bool(advantage.is_correction_level != "off")
    return bool(advantage.is_correction_enable)  # before 0.11.1

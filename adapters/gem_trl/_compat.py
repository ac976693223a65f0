"""What differs between the TRL versions that are supported; everything else is the same from the first to the last."""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import Any

#: The oldest version that the tests were run with, and the first that is not supported.
OLDEST, FIRST_UNSUPPORTED = "1.0.0", "2.0.0"


def check_version() -> None:
    """Raises ImportError unless a supported TRL is installed."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise ImportError("gem_trl needs TRL: pip install 'gem-adapters[trl]'", name="trl") from None
    if not _key(OLDEST) <= _key(found) < _key(FIRST_UNSUPPORTED):
        raise ImportError(
            f"gem_trl supports TRL {OLDEST} up to, not including, {FIRST_UNSUPPORTED}; TRL {found} is installed: "
            "pip install 'gem-adapters[trl]'",
            name="trl",
        )


def logps_result(logps: Any, entropies: Any) -> tuple[Any, ...]:
    """What ``GRPOTrainer._get_per_token_logps_and_entropies`` returns in the installed version."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    # Newer versions add the load-balancing loss of mixture-of-experts models as a third value.
    parameters = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    return (logps, entropies, None) if "compute_aux_loss" in parameters else (logps, entropies)


def _key(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split(".")[:3]:
        digits = ""
        for c in part:
            if not c.isdigit():
                break
            digits += c
        parts.append(int(digits or 0))
    return tuple(parts)

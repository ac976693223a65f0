"""What differs between the TRL versions that are supported; everything else is the same from the first to the last."""

from __future__ import annotations

import inspect
from typing import Any

from gem_core._versions import require_framework

#: The oldest version that the tests were run with, and the first that is not supported.
OLDEST, FIRST_UNSUPPORTED = "1.0.0", "2.0.0"


def check_version() -> str:
    """Returns TRL's version; raises ImportError unless it is served."""
    return require_framework("trl", "gem_trl", "trl", oldest=OLDEST, below=FIRST_UNSUPPORTED)


def logps_result(logps: Any, entropies: Any) -> tuple[Any, ...]:
    """What ``GRPOTrainer._get_per_token_logps_and_entropies`` returns in the installed version."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    # Newer versions add the load-balancing loss of mixture-of-experts models as a third value.
    parameters = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    return (logps, entropies, None) if "compute_aux_loss" in parameters else (logps, entropies)

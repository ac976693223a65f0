"""GEM environments in verl.

A verl user names :class:`GemRolloutWorker` in ``actor_rollout_ref.rollout.agent.agent_loop_manager_class`` and the
environments under ``data.gem`` (:class:`gem_verl.settings.GemSettings`). The advantage estimators ``gem_rebn``,
``gem_grpo_turn`` and ``gem_rloo_turn`` and the trainer mode ``gem_sync`` are registered through verl's own plug-in
entry point.

How tokens, masks and rewards reach the loss: :mod:`gem_verl.agent_loop` plays one episode through
:class:`gem_core.EpisodeSession` against verl's server, :mod:`gem_verl.output` lays it out as verl's rows,
:mod:`gem_verl.advantages` turns each turn's reward into its advantage.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_verl._compat import SUPPORTED, check_version

if TYPE_CHECKING:
    from gem_verl.agent_loop import GemAgentLoop as GemAgentLoop
    from gem_verl.dataset import GemDataset as GemDataset
    from gem_verl.rollout_worker import GemRolloutWorker as GemRolloutWorker
    from gem_verl.settings import GemSettings as GemSettings

check_version()

# Lazy, because verl imports plug-ins at the end of its own import.
_LAZY = {
    "GemAgentLoop": "gem_verl.agent_loop",
    "GemDataset": "gem_verl.dataset",
    "GemRolloutWorker": "gem_verl.rollout_worker",
    "GemSettings": "gem_verl.settings",
}

__all__ = ["SUPPORTED", "GemAgentLoop", "GemDataset", "GemRolloutWorker", "GemSettings"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_verl' has no attribute {name!r}")

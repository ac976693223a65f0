"""GEM environments in OpenRLHF.

:class:`GemAgentExecutor` is what ``--train.agent_func_path`` loads; ``python -m gem_openrlhf.dataset`` writes the
prompt dataset whose rows name the environments and seeds; ``python -m gem_openrlhf.launch`` is
``openrlhf.cli.train_ppo_ray`` with turn-level advantage estimators (``--algo.advantage.estimator gem_rebn``).

How tokens, masks and rewards reach the loss: :mod:`gem_openrlhf.executor` plays one episode through
:class:`gem_core.EpisodeSession` against OpenRLHF's engine, :mod:`gem_openrlhf.output` lays it out as OpenRLHF's dict,
:mod:`gem_openrlhf.samples` and :mod:`gem_openrlhf.experience_maker` turn each turn's reward into its advantage.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_openrlhf._compat import SUPPORTED, check_version
from gem_openrlhf.settings import GemSettings

if TYPE_CHECKING:
    from gem_openrlhf.executor import GemAgentExecutor as GemAgentExecutor
    from gem_openrlhf.experience_maker import GemExperienceMaker as GemExperienceMaker

check_version()

# Lazy: the dataset command and the settings need nothing of OpenRLHF's, whose own import takes many seconds.
_LAZY = {
    "GemAgentExecutor": "gem_openrlhf.executor",
    "GemExperienceMaker": "gem_openrlhf.experience_maker",
}

__all__ = ["SUPPORTED", "GemAgentExecutor", "GemExperienceMaker", "GemSettings"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_openrlhf' has no attribute {name!r}")

"""GEM environments on the Tinker API.

:class:`TinkerTrainer` is the whole loop: episodes through a sampling client, one advantage a turn, updates through a
training client. Its parts can be used alone: :class:`TinkerPolicy` (for any of :mod:`gem_core.rollout`'s functions) and
:func:`datums` (episodes to training data). :mod:`gem_tinker.cookbook` has the same environments for tinker-cookbook's
own trainer, :mod:`gem_tinker.local_server` a server on this machine.
"""

from __future__ import annotations

from gem_tinker._compat import SUPPORTED, check_version

check_version()

from gem_tinker.datums import datums  # noqa: E402 - an unsupported version must be named before anything fails
from gem_tinker.policy import TinkerPolicy  # noqa: E402
from gem_tinker.settings import TinkerConfig  # noqa: E402
from gem_tinker.trainer import TinkerTrainer  # noqa: E402

__all__ = ["SUPPORTED", "TinkerConfig", "TinkerPolicy", "TinkerTrainer", "datums"]

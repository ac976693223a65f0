"""What verl imports in each of its processes: through the entry-point group ``verl.plugins``, or, in verl 0.8.0 which
has none, through ``VERL_USE_EXTERNAL_MODULES=gem_verl.plugin``."""

from __future__ import annotations

from gem_verl import advantages as advantages
from gem_verl._compat import has_trainer_modes

if has_trainer_modes():
    from gem_verl import trainer as trainer

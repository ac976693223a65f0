"""What verl imports in each of its processes, through the entry-point group ``verl.plugins``."""

from __future__ import annotations

from gem_verl import advantages as advantages
from gem_verl import trainer as trainer

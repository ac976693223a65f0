"""Lets Oat run where there is no GPU: put this folder on PYTHONPATH.

Python imports this module at the start of every process, so the processes that Oat launches are served too. Nothing
happens before Oat is imported.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _BeforeOat(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "oat":
            sys.meta_path.remove(self)
            import oat_without_gpu

            oat_without_gpu.install()
        return None


sys.meta_path.insert(0, _BeforeOat())

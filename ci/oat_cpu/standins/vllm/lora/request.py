"""Named by Oat's annotations only."""

from __future__ import annotations


class LoRARequest: ...

"""``python -m gem_core`` is the ``gem`` command."""

from __future__ import annotations

import sys

from gem_core.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""The ``gem`` command. Everything else loads when a command needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Exit codes, beside 0: all went well.
FAILED, USAGE, MISSING_PACKAGE, INTERRUPTED = 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    0: all went well. 1: the work failed (an endpoint that is gone, a program that raised). 2: the command line or a
    value in it makes no sense. 3: a package is missing; the message says which. 130: interrupted. Errors are one line;
    ``--debug`` anywhere (or ``GEM_DEBUG=1``) shows the traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or os.environ.get("GEM_DEBUG", "") not in ("", "0")
    try:
        from gem_core.cli.app import run
    except ModuleNotFoundError as e:
        if e.name not in ("typer", "rich", "click"):
            raise
        print(f"gem needs the package {e.name!r}: pip install 'gem-adapters[eval]'", file=sys.stderr)
        return MISSING_PACKAGE
    return run([a for a in arguments if a != "--debug"], debug)

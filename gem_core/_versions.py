"""The one check that every adapter makes of its framework's version."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

#: Set to 1: a version outside an adapter's range brings a warning, not an ImportError. For trying a new release.
ALLOW_UNTESTED = "GEM_ALLOW_UNTESTED"


def require_framework(
    distribution: str,
    package: str,
    extra: str,
    *,
    served: Sequence[str] = (),
    oldest: str = "",
    below: str = "",
) -> str:
    """Returns the installed version of a framework.

    Args:
        distribution: The framework's name as pip knows it.
        package: The adapter's import name, for the message.
        extra: The extra of ``gem-adapters`` that brings the framework.
        served: The versions served, where they are listed one by one.
        oldest: Else: the oldest version served,
        below: and the first one after it that is not.

    Raises:
        ImportError: the framework is missing, or its version is not served; both name what is served.
    """
    listed = ", ".join(served) if served else f"{oldest} up to, not including, {below}"
    bring = f"pip install 'gem-adapters[{extra}]'"
    try:
        found = version(distribution)
    except PackageNotFoundError:
        raise ImportError(f"{package} needs {distribution} ({listed}): {bring}", name=distribution) from None
    if found in served if served else release(oldest) <= release(found) < release(below):
        return found
    message = f"{package} supports {distribution} {listed}; {distribution} {found} is installed: {bring}"
    if os.environ.get(ALLOW_UNTESTED) == "1":
        warnings.warn(f"{message} ({ALLOW_UNTESTED}=1 lets it pass)", stacklevel=3)
        return found
    raise ImportError(message, name=distribution)


def release(text: str) -> tuple[int, ...]:
    """The numbers of a version, three of them; what follows them (rc1, .dev0, +cpu) is left out."""
    numbers = [int(m.group()) if (m := re.match(r"\d+", part)) else 0 for part in text.split(".")[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))

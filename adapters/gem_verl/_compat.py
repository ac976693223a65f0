"""Everything that depends on verl's version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

#: Releases this adapter is tested with.
SUPPORTED = ("0.9.1", "0.9.0")


def check_version() -> str:
    """Returns verl's version.

    Raises:
        ImportError: verl is missing, or a version this adapter does not serve; both name what is served.
    """
    served = ", ".join(SUPPORTED)
    try:
        found = version("verl")
    except PackageNotFoundError:
        raise ImportError(f"gem_verl needs verl ({served}): pip install 'gem-adapters[verl]'", name="verl") from None
    if found not in SUPPORTED:
        raise ImportError(f"gem_verl does not support verl {found}; it supports {served}", name="verl")
    return found

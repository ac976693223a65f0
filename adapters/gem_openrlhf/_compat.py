"""Which OpenRLHF releases are supported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

#: Releases this adapter is tested with.
SUPPORTED = ("0.11.2",)


def check_version() -> str:
    """Returns OpenRLHF's version, without importing it.

    Raises:
        ImportError: OpenRLHF is missing, or a version this adapter does not serve; both name what is served.
    """
    served = ", ".join(SUPPORTED)
    try:
        found = version("openrlhf")
    except PackageNotFoundError:
        raise ImportError(
            f"gem_openrlhf needs OpenRLHF ({served}): pip install 'gem-adapters[openrlhf]'", name="openrlhf"
        ) from None
    if found not in SUPPORTED:
        raise ImportError(f"gem_openrlhf does not support OpenRLHF {found}; it supports {served}", name="openrlhf")
    return found

"""Which releases of the Tinker SDK, its cookbook and the local server are served."""

from __future__ import annotations

from gem_core._versions import require_framework

#: Releases of the SDK (``tinker``) that this adapter is tested with.
SUPPORTED = ("0.25.0", "0.38.0")
#: Releases of ``tinker-cookbook``, for :mod:`gem_tinker.cookbook`; they need the newer SDK.
SUPPORTED_COOKBOOK = ("0.6.1",)
#: Releases of ``skyrl``, for :mod:`gem_tinker.local_server`; they answer SDK 0.25.0.
SUPPORTED_SERVER = ("0.4.0",)


def check_version() -> str:
    """Returns the SDK's version; raises ImportError unless it is served."""
    return require_framework("tinker", "gem_tinker", "tinker", served=SUPPORTED)


def check_cookbook() -> str:
    """Returns the cookbook's version; raises ImportError unless it is served."""
    return require_framework("tinker-cookbook", "gem_tinker.cookbook", "tinker", served=SUPPORTED_COOKBOOK)

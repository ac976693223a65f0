"""Everything that depends on which RL2 is installed.

RL2's repository and its one release carry the same version number and ask environments for different functions, so
they are told apart by what ``RL2.datasets`` has.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

#: ``"repository"``: ``generate(config, tokenizer, router_url, sample)``. ``"0.0.2"``: ``reset`` and ``step``.
Contract = Literal["repository", "0.0.2"]
#: Versions of ``rl-square`` that this adapter is tested with.
SUPPORTED = ("0.0.2",)
#: The commit of github.com/ChenmienTan/RL2 whose contract this adapter is tested with.
REPOSITORY_COMMIT = "9161ede5dcd2700bc166a17b1041bd206a75b5d4"

#: What the adapter writes to a ``Sample``, and expects there.
SAMPLE_FIELDS = ("sample", "state_text", "action_text", "state_dicts", "turn", "metrics", "status")
#: What a ``state_dict`` of either contract holds, one list of equal length each.
STATE_FIELDS = ("states", "actions", "action_mask", "logps", "rewards")


def check_version() -> None:
    """Raises ImportError where RL2 is missing or is a version this adapter does not serve; the message names both.

    A checkout on ``PYTHONPATH`` has no version; its contract is looked at when it is used (:func:`contract`).
    """
    served = f"rl-square {', '.join(SUPPORTED)} and the repository at {REPOSITORY_COMMIT[:7]}"
    try:
        found = version("rl-square")
    except PackageNotFoundError:
        if importlib.util.find_spec("RL2") is None:
            raise ImportError(f"gem_rl2 needs RL2 ({served}): pip install 'gem-adapters[rl2]'", name="RL2") from None
        return
    if found not in SUPPORTED:
        raise ImportError(f"gem_rl2 does not support rl-square {found}; it supports {served}", name="RL2")


def contract() -> Contract:
    """Which of its two contracts the installed RL2 has.

    Raises:
        ImportError: neither; the message names what is missing.
    """
    import RL2.datasets as datasets

    if not hasattr(datasets, "Sample"):
        _need(datasets, ("initialize_state_dict", "state_dict_to_tensor_dict", "pack_tensor_dicts"))
        return "0.0.2"
    _need(datasets, ("SampleGroup", "RLDataset", "pack_tensor_dicts"))
    fields = getattr(datasets.Sample, "__dataclass_fields__", {})
    if missing := [f for f in SAMPLE_FIELDS if f not in fields]:
        raise ImportError(f"gem_rl2 does not support this RL2: its Sample has no {', '.join(missing)}", name="RL2")
    if missing := [s for s in ("RUNNING", "ABORTED", "DONE") if s not in datasets.Sample.Status.__members__]:
        raise ImportError(f"gem_rl2 does not support this RL2: no Sample.Status.{missing[0]}", name="RL2")
    return "repository"


def _need(module: Any, names: tuple[str, ...]) -> None:
    if missing := [n for n in names if not hasattr(module, n)]:
        raise ImportError(
            f"gem_rl2 does not support this RL2: {module.__name__} has no {', '.join(missing)}", name="RL2"
        )

"""These tests run in RL2's environments (ci/matrix.toml), no GPU, on the RL2 that is installed.

With rl-square 0.0.2 from the package index, the repository's contract is tested on a record of what its code asks for
(``repository_contract.json``). With the repository itself (installed from git, or ``RL2_SOURCE=/path/to/RL2`` for a
checkout), on its own code, and the record is compared with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "ci" / "rl2_cpu"), str(ROOT / "ci" / "rl2_cpu" / "standins")]
if checkout := os.environ.get("RL2_SOURCE"):
    sys.path.insert(0, checkout)
    # For the processes that the tests start.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))

import cpu  # noqa: E402

cpu.install()

from rl2_helpers import REPOSITORY  # noqa: E402

# Nothing is skipped: each of the two RL2s has files of its own.
collect_ignore = ["test_release.py"] if REPOSITORY else ["test_repository_source.py"]


@pytest.fixture(scope="session", autouse=True)
def _process_group() -> Iterator[None]:
    """RL2 logs from rank 0 and asks which rank it is."""
    import torch
    import torch.distributed as dist
    import wandb

    torch.set_num_threads(1)
    wandb.log = lambda *args, **kwargs: None
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    import gem_rl2
    from gem_rl2.player import PLAYERS

    gem_rl2.configure(gem_rl2.GemSettings(env_timeout_s=20.0))
    yield
    gem_rl2.configure(None)
    assert not PLAYERS, "an episode was left open"


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as it is initialised, without its warm start."""
    from gem_core.tiny import build_tiny, save_tiny

    model, tokenizer = build_tiny(0, ["game:GuessTheNumber-v0"])
    return save_tiny(model, tokenizer, tmp_path_factory.mktemp("tiny"))

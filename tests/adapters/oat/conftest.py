"""Oat without a GPU: its real actor, learner, DeepSpeed engine and shared memory; see ``ci/oat_cpu``."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
CPU = ROOT / "ci" / "oat_cpu"
sys.path.insert(0, str(CPU))
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(CPU), os.environ.get("PYTHONPATH", "")) if p)
os.environ["OMP_NUM_THREADS"] = "1"

import oat_without_gpu  # noqa: E402

oat_without_gpu.install()
torch.set_num_threads(1)

GAME: dict[str, Any] = {
    "env_id": "game:GuessTheNumber-v0",
    "env_kwargs": '{"max_turns": 4}',
    "wrappers": "request_once",
    "gpus": 1,
    "collocate": True,
    "bf16": False,
    "flash_attn": False,
    "use_fused_lm_head": False,
    "beta": 0.0,
    "gamma": 0.9,
    "num_envs": 8,
    "max_model_len": 512,
    "generate_max_length": 5,
    "eval_generate_max_length": 5,
    "rollout_batch_size_per_device": 16,
    "train_batch_size": 16,
    "train_batch_size_per_device": 8,
    "learning_rate": 1e-3,
    "lr_scheduler": "constant",
    "lr_warmup_ratio": 0.0,
    "num_ppo_epochs": 2,
    "max_train": 64,
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny model that knows the form of an action."""
    from gem_core import make
    from gem_core.tiny import build_tiny, save_tiny, warm_start
    from gem_core.wrappers.compact import RequestOnce

    model, tokenizer = build_tiny(0, [GAME["env_id"]])
    env = RequestOnce(make(GAME["env_id"], max_turns=4))
    warm_start(model, tokenizer, env, steps=20, episodes_per_step=16, warmup_steps=5)
    return str(save_tiny(model, tokenizer, tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="session")
def store() -> Iterator[Any]:
    """Oat's shared memory, as its node would serve it."""
    from pyarrow import plasma

    class Server:
        def __init__(self, path: str) -> None:
            self._path = path

        def get_shm_path(self) -> str:
            return self._path

    with plasma.start_plasma_store(plasma_store_memory=50_000_000) as (path, _):
        yield Server(path)


@pytest.fixture(scope="session")
def make_args(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    from gem_oat import GemArgs, prepare_args

    def build(**changes: Any) -> Any:
        folder = str(tmp_path_factory.mktemp("run"))
        return prepare_args(GemArgs(**{**GAME, "pretrain": tiny, "save_path": folder, **changes}))

    return build


@pytest.fixture(scope="session")
def make_actor(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    from gem_oat import GemActor

    def build(args: Any, actor_id: int = 0) -> Any:
        actor = GemActor(store, {"model": args.pretrain, "dtype": "float32"}, args)
        actor.init(actor_id, str(tmp_path_factory.mktemp("actor")))
        return actor

    return build


@pytest.fixture(scope="session")
def make_learner() -> Callable[[Any], Any]:
    """A learner after its own set-up: the model in DeepSpeed's engine, optimizer, scheduler; no actors."""
    from gem_oat import GemLearner

    def build(args: Any) -> Any:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        learner = GemLearner(1, 0, 0, "127.0.0.1", port, True, args, [], None)
        learner._init(args, [])
        learner.steps = 1
        return learner

    return build


@pytest.fixture(scope="session")
def take() -> Callable[..., Any]:
    """One actor step, through the shared memory."""

    def step(actor: Any, size: int | None = None) -> Any:
        handle = actor.step() if size is None else actor.step([""] * size, [""] * size)
        return actor.ipc_client.deserialize_ipc(handle)

    return step

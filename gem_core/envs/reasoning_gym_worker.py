"""Runs in a worker process: scores answers with reasoning-gym's own scorers."""

from __future__ import annotations

import json
import warnings
from typing import Any

from gem_core.envs.reasoning_gym import _package, build_dataset

warnings.simplefilter("ignore")  # scorers warn about answers they cannot read
_package()
_datasets: dict[str, Any] = {}


def score(job: tuple[str, dict[str, Any], dict[str, Any], str]) -> float:
    """``job``: task, its config, the instance, the answer. Returns a score in [0, 1]."""
    name, config, entry, answer = job
    if name == "game_of_life_halting":
        # The scorer of reasoning-gym 0.1.25 takes bool() of the texts, which makes every answer right.
        return float(answer.strip().casefold() == entry["answer"].casefold())
    key = json.dumps([name, config], sort_keys=True, default=repr)
    if key not in _datasets:
        _datasets[key] = build_dataset(name, 0, 1, config)
    try:
        return min(1.0, max(0.0, float(_datasets[key].score_answer(answer, entry))))
    except MemoryError:
        raise
    except Exception:  # several scorers raise on an answer that is not of their form
        return 0.0

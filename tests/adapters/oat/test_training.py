"""Optimizer steps in Oat's own learner, on a tiny model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.l3]


@pytest.fixture(scope="module")
def learner(make_args: Any, make_learner: Any) -> Any:
    return make_learner(make_args())


def test_real_updates_and_equal_log_probabilities(learner: Any, make_actor: Any, take: Any) -> None:
    actor = make_actor(learner.args)
    before = copy.deepcopy(learner.model.model.module.state_dict())
    batch = take(actor)
    learner.process_feedback_data(batch)
    info = learner.learn(1)
    print(info)
    changed = [k for k, v in learner.model.model.module.state_dict().items() if not torch.equal(v, before[k])]
    assert len(changed) == len(before)
    assert all(np.isfinite(v) for v in info.values())

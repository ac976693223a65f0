"""Configuration, dataset and version checks of the verl adapter."""

from __future__ import annotations

from typing import Any

import pytest
from gem_verl import SUPPORTED, _compat
from gem_verl.dataset import GemDataset
from gem_verl.settings import VALIDATION_SEED, GemSettings

MIX = {"envs": [{"env_id": "game:A", "weight": 3}, {"env_id": "game:B", "kwargs": {"k": 1}}], "seed": 5}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "no data.gem section"),
        ({"seed": 1}, "either env_id or envs"),
        ({"env_id": "a", "envs": [{"env_id": "b"}]}, "either env_id or envs"),
        ({"env_id": "a", "colour": 1}, r"unknown keys in data.gem: \['colour'\]"),
        ({"env_id": "a", "context": "sideways"}, "data.gem.context must be one of"),
        ({"env_id": "a", "val_size": 0}, "val_size must be positive"),
        ({"env_id": "a", "seed": -1}, "seed must be a non-negative"),
        ({"envs": [{"env_id": "b", "weight": 0}]}, "weight of b must be positive"),
    ],
)
def test_a_wrong_setting_is_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GemSettings.from_config({"gem": section})


def test_a_mix_is_drawn_by_weight_and_the_same_everywhere() -> None:
    settings = GemSettings.from_config({"gem": MIX})
    drawn = [settings.choose(s).env_id for s in range(4000)]
    assert 0.72 < drawn.count("game:A") / 4000 < 0.78
    assert drawn == [settings.choose(s).env_id for s in range(4000)]


def test_rows_carry_env_and_seed_and_validation_is_held_out() -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create({"gem": {**MIX, "train_size": 10, "val_size": 4}})
    train = GemDataset(["gem://train"], None, config)
    val = GemDataset("gem://val", None, config)
    assert (len(train), len(val)) == (10, 4)
    assert [train[i]["env_seed"] for i in range(10)] == list(range(5, 15))
    assert val[0]["env_seed"] == 5 + VALIDATION_SEED
    assert train[3]["data_source"] == train[3]["env_id"]
    assert len(GemDataset("gem://train", None, config, max_samples=3)) == 3
    with pytest.raises(IndexError):
        train[10]


def test_other_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compat.check_version() in SUPPORTED
    monkeypatch.setattr("gem_core._versions.version", lambda name: "0.3.0")
    with pytest.raises(ImportError, match=r"supports verl 0\.9\.1, 0\.9\.0, 0\.8\.0; verl 0\.3\.0 is installed"):
        _compat.check_version()

"""What the bridges do by themselves, whichever of the libraries is installed."""

# ruff: noqa: NPY002 - the legacy global state is what is tested
from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from gem_core.bridges import catalogue
from gem_core.bridges.foreign_random import ForeignRandom
from gem_core.bridges.openenv import _fields, _last_object, _only_text_field, _sample, _typed


def test_foreign_draws_are_repeatable_and_leave_the_global_state_alone() -> None:
    def draw(foreign: ForeignRandom, n: int) -> list[float]:
        with foreign.swapped_in():
            return [random.random() for _ in range(n)] + [float(np.random.rand())]

    outside = (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[union-attr, index]
    first, second = ForeignRandom(), ForeignRandom()
    first.seed(5)
    second.seed(5)
    a = draw(first, 2)
    with pytest.raises(KeyError), second.swapped_in():
        raise KeyError
    assert draw(second, 2) == a
    assert draw(first, 1) == draw(second, 1)
    first.seed(5)
    assert draw(first, 2) == a
    assert outside == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[union-attr, index]


def test_two_foreign_environments_do_not_mix_in_threads() -> None:
    def play(results: list[list[float]]) -> None:
        foreign = ForeignRandom()
        foreign.seed(1)
        drawn = []
        for _ in range(20):
            with foreign.swapped_in():
                drawn.append(random.random())
            time.sleep(0)
        results.append(drawn)

    results: list[list[float]] = []
    threads = [threading.Thread(target=play, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [results[0]] * 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('So: {"a": 1}', {"a": 1}),
        ('{"a": 1} or {"b": {"c": 2}} then', {"b": {"c": 2}}),
        ('{broken {"a": "{x}"}', {"a": "{x}"}),
        ("{" * 100_000, None),
        ("none", None),
    ],
)
def test_the_last_object_of_a_text(text: str, value: Any) -> None:
    assert _last_object(text) == value


def test_the_field_that_takes_the_text() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    assert _only_text_field({"n": number}) == "n"
    assert _only_text_field({"code": text, "timeout": {**number, "default": 3}}) == "code"
    assert _only_text_field({"a": text, "b": text}) is None
    assert _only_text_field({"a": text, "n": number}) is None
    assert _only_text_field({}) is None
    assert _typed(" 3 ", "integer") == 3
    assert _typed(" 3 ", "string") == " 3 "
    with pytest.raises(ValueError, match="integer"):
        _typed("three", "integer")


def test_fields_of_observations_of_any_kind() -> None:
    class Plain:
        def __init__(self) -> None:
            self.text = "x"

    class Model:
        def model_dump(self) -> dict[str, Any]:
            return {"text": "y"}

    assert [_fields(o) for o in ({"text": "z"}, Plain(), Model())] == [{"text": t} for t in "zxy"]
    assert _fields("plain") == {"observation": "plain"}


def test_random_values_keep_to_the_schema() -> None:
    rng = random.Random(0)
    for _ in range(20):
        assert _sample(rng, {"enum": ["a", "b"]}) in ("a", "b")
        assert 3 <= _sample(rng, {"type": "integer", "minimum": 3, "maximum": 5}) <= 5
        assert 0.0 <= _sample(rng, {"type": "number"}) <= 1.0
        assert isinstance(_sample(rng, {"type": "boolean"}), bool)
        assert isinstance(_sample(rng, {"type": "string"}), str)


def test_ids_of_the_bridges() -> None:
    spec = catalogue.find_spec("openenv:http://localhost:8000")
    assert spec is not None
    assert spec.kwargs == {"server": "http://localhost:8000"}
    assert catalogue.find_spec("verifiers:owner/name").kwargs == {"name": "owner/name"}  # type: ignore[union-attr]
    assert catalogue.find_spec("verifiers:") is None
    assert catalogue.find_spec("other:x") is None

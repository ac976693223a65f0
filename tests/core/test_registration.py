"""Ids: lookup, suggestions, arguments, missing extras, third-party entry points."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support import ScriptEnv

import gem_core as gem
from gem_core import registration


@pytest.fixture
def registered() -> Any:
    added: list[str] = []

    def add(env_id: str, entry_point: Any, **kwargs: Any) -> None:
        gem.register(env_id, entry_point, **kwargs)
        added.append(env_id)

    yield add
    for env_id in added:
        gem.unregister(env_id)


def test_register_and_make_with_overrides(registered: Any) -> None:
    registered("test:Mine-v0", ScriptEnv, steps=[], first="A")
    env = gem.make("test:Mine-v0", first="B")
    assert env.reset()[0] == "B"
    assert env.env_id == "test:Mine-v0"
    assert "test:Mine-v0" in gem.list_envs("test:*")
    with pytest.raises(ValueError, match="already registered"):
        registered("test:Mine-v0", ScriptEnv)


def test_an_id_without_version_means_the_newest(registered: Any) -> None:
    registered("test:Two-v2", ScriptEnv, steps=[], first="two")
    registered("test:Two-v10", ScriptEnv, steps=[], first="ten")
    assert gem.make("test:Two").reset()[0] == "ten"
    assert gem.spec("game:GuessTheNumber").id == "game:GuessTheNumber-v0"


@pytest.mark.parametrize(
    ("wrong", "suggested"),
    [
        ("game:GuesTheNumber-v0-easy", "game:GuessTheNumber-v0-easy"),
        ("GuessTheNumber", "game:GuessTheNumber-v0"),
        ("guessthenumber-v0-hard", "game:GuessTheNumber-v0-hard"),
    ],
)
def test_an_unknown_id_suggests_the_nearest(wrong: str, suggested: str) -> None:
    with pytest.raises(ValueError, match=f"no environment is called {wrong!r}; did you mean .*{suggested}"):
        gem.make(wrong)


def test_an_unknown_argument_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no argument 'max_turn'; did you mean 'max_turns'"):
        gem.make("game:GuessTheNumber-v0", max_turn=3)
    env = gem.make("game:GuessTheNumber-v0")
    with pytest.raises(ValueError, match="no argument 'size'"):
        env.spawn(size=3)
    assert env.spawn(max_number=30).reset(seed=0)[0].count("30")


def test_nonsense_values_are_named() -> None:
    for env_id in (3, None, ""):
        with pytest.raises(ValueError, match="environment"):
            gem.make(env_id)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'nocolon'"):
        gem.register("test:Bad", "nocolon")
    with pytest.raises(ValueError, match="neither callable"):
        gem.register("test:Bad", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="was not added"):
        gem.unregister("game:GuessTheNumber-v0")


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_seed_is_a_non_negative_integer(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be a non-negative integer"):
        gem.make("game:GuessTheNumber-v0").reset(seed=seed)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> gem.Env:
        import a_package_nobody_has  # type: ignore[import-not-found]  # noqa: F401

        return ScriptEnv([])

    spec = gem.EnvSpec("test:Needy", build, extra="math")
    monkeypatch.setitem(registration._REGISTRY, spec.id, spec)
    with pytest.raises(
        ImportError, match=r"test:Needy needs .*a_package_nobody_has.*pip install 'gem-adapters\[math\]'"
    ):
        gem.make("test:Needy")


def test_entry_points_of_other_packages_are_loaded_and_a_broken_one_does_not_hide_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "third_party_envs.py").write_text(
        "import gem_core as gem\n"
        "from support import ScriptEnv\n"
        "def register():\n    gem.register('third:Party-v0', ScriptEnv, steps=[])\n"
        "def broken():\n    raise OSError('no')\n"
    )
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gem_core.envs]\na_broken = third_party_envs:broken\nmine = third_party_envs:register\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registration, "_entry_points_loaded", False)
    try:
        assert gem.make("third:Party").reset()[0] == "Begin."
        assert "OSError: no" in caplog.text
    finally:
        gem.unregister("third:Party-v0")
        sys.modules.pop("third_party_envs", None)


def test_wrappers_read_through_and_spawn_with_what_they_wrap() -> None:
    class Loud(gem.EnvWrapper):
        def __init__(self, env: gem.Env, mark: str = "!") -> None:
            super().__init__(env)
            self.mark = mark

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            observation, info = super().reset(seed, options)
            return observation + self.mark, info

    env = Loud(gem.make("game:GuessTheNumber-v0"), mark="?")
    assert env.reset(seed=5)[0].endswith("?")
    assert env.max_turns == 10
    assert env.env_id == "game:GuessTheNumber-v0"
    assert env.spawn().env_id == "game:GuessTheNumber-v0"
    assert env.cost == "cheap"
    assert env.unwrapped.env_id == "game:GuessTheNumber-v0"
    env.step("\\boxed{3}")
    twin = env.spawn(same_state=True)
    assert isinstance(twin, Loud)
    assert twin.mark == "?"
    assert twin.step("\\boxed{4}") == env.step("\\boxed{4}")
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = env.nothing_like_this
    import copy
    import pickle

    assert copy.deepcopy(env.env).step("\\boxed{4}") == pickle.loads(pickle.dumps(env.env)).step("\\boxed{4}")

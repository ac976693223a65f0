from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridges_support import require

import gem_core
from gem_core.core import Env

ENVIRONMENTS = str(Path(__file__).parent / "environments")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[Env]:
    """The small environment of whichever interface the installed verifiers has."""
    require("verifiers")
    monkeypatch.syspath_prepend(ENVIRONMENTS)
    env = gem_core.make(f"verifiers:{'gem-sums-env' if classic() else 'gem-sums-v1'}", step_timeout_s=60)
    yield env
    env.close()


def classic() -> bool:
    import verifiers

    return hasattr(verifiers, "load_environment")


def test_an_environment_in_one_line(env: Env) -> None:
    observation, info = env.reset(options={"index": 1})
    assert observation == "Answer with a number.\n\n11 + 11 = ?"
    assert info == {"index": 1}
    _, reward, terminated, truncated, info = env.step("It is 22.")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["stop_condition"] in ("solved", "agent_completed")
    with pytest.raises(RuntimeError, match="reset"):
        env.step("22")
    env.reset(options={"index": 2})
    result = env.step("7")
    if classic():
        assert result[:4] == ("Not 7. Once more.", 0.0, False, False)
        result = env.step("")
    assert result[1:3] == (0.0, True)


def test_seeds_pick_rows_and_bad_ones_are_named(env: Env) -> None:
    picked = [env.reset(seed=s)[1]["index"] for s in range(12)]
    assert set(picked) == {0, 1, 2}
    assert picked == [env.reset(seed=s)[1]["index"] for s in range(12)]
    with pytest.raises(ValueError, match="from 0 to 2"):
        env.reset(options={"index": 3})
    with pytest.raises(ValueError, match="row"):
        env.reset(options={"row": 1})


def test_an_abandoned_episode_leaves_no_thread(env: Env) -> None:
    env.reset(seed=0)
    env.reset(seed=1)
    env.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("gem-verifiers-")] == []


def test_state_is_played_again(env: Env) -> None:
    env.reset(options={"index": 0})
    if classic():
        env.step("1")
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    assert sibling.step("20")[:4] == env.step("20")[:4]
    sibling.close()


def test_a_missing_environment_is_named() -> None:
    require("verifiers")
    with pytest.raises(ImportError, match="no-such-environment-xyz"):
        gem_core.make("verifiers:no-such-environment-xyz")


def test_without_the_package_the_error_says_what_to_install() -> None:
    if importlib.util.find_spec("verifiers") is not None:
        pytest.skip("verifiers is installed")
    with pytest.raises(ImportError, match="pip install verifiers"):
        gem_core.make("verifiers:anything")

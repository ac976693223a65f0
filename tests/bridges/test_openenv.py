from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridges_support import require

import gem_core

SERVER = str(Path(__file__).parent / "openenv_server_for_tests.py")


@pytest.fixture(scope="module", params=["text", "pair"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    require("openenv")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVER, str(port), request.param])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", request.param
    finally:
        process.kill()
        process.wait()


def say(kind: str, left: int) -> str:
    return str(left - 1) if kind == "text" else 'I think {"x"} so: {"by": 1, "reason": "{rule}"}'


def number(observation: str) -> int:
    found = re.search(r"\d+", observation)
    assert found
    return int(found[0])


def test_a_server_is_an_environment_in_one_line(server: tuple[str, str]) -> None:
    url, kind = server
    env = gem_core.make(f"openenv:{url}")
    observation, _ = env.reset(seed=3)
    left = number(observation)
    assert observation == (f"{left} left." if kind == "text" else f"left: {left}\nhint: by one")
    assert env.reset(seed=3)[0] == observation
    wrong = "no idea" if kind == "text" else '{"by": 2, "reason": ""}'
    assert env.step(wrong)[1:4] == (-0.5, False, False)
    rewards = []
    while left:
        observation, reward, terminated, truncated, _ = env.step(say(kind, left))
        rewards.append(reward)
        left = number(observation)
    assert (terminated, truncated) == (True, False)
    assert sum(rewards) == 1.0
    with pytest.raises(RuntimeError, match="reset"):
        env.step("0")
    assert number(env.reset(options={"start": 9})[0]) == 9
    env.close()
    env.close()


def test_state_is_played_again_and_siblings_have_their_own_session(server: tuple[str, str]) -> None:
    url, kind = server
    env = gem_core.make(f"openenv:{url}")
    left = number(env.reset(seed=5)[0])
    env.step(say(kind, left))
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    for step in range(2, left + 1):
        action = say(kind, left - step + 1)
        assert sibling.step(action) == env.step(action)
    assert env.get_state()["over"] is True
    env.close()
    sibling.close()


def test_actions_without_an_object_cost_the_turn(server: tuple[str, str]) -> None:
    url, kind = server
    env = gem_core.make(f"openenv:{url}")
    env.reset(seed=1)
    if kind == "pair":
        observation, reward, terminated, _, info = env.step("no object {" + "{" * 100_000)
        assert "by, reason" in observation
        assert (reward, terminated, info) == (0.0, False, {"action_is_valid": False})
        assert set(json.loads(env.sample_random_action())) == {"by", "reason"}
    else:
        assert env.sample_random_action()
    env.close()


def test_the_action_s_field_can_be_named(server: tuple[str, str]) -> None:
    url, kind = server
    if kind == "text":
        with pytest.raises(ValueError, match="txt"):
            gem_core.make(f"openenv:{url}", action_field="txt")
    else:
        env = gem_core.make(f"openenv:{url}", to_action=lambda text: {"by": len(text), "reason": ""})
        env.reset(seed=1)
        assert env.step("x")[1] >= 0.0
        env.close()


def test_nobody_there_is_an_error_by_name() -> None:
    require("openenv")
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:9"):
        gem_core.make("openenv:http://127.0.0.1:9")


def test_without_the_package_the_error_says_what_to_install() -> None:
    if importlib.util.find_spec("openenv") is not None:
        pytest.skip("openenv is installed")
    with pytest.raises(ImportError, match="pip install openenv-core"):
        gem_core.make("openenv:http://127.0.0.1:9")

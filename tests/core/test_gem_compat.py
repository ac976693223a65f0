"""Scripts as they are written for GEM 0.1, with only the import line changed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import gem_core as gem
from gem_core.core import Env, EnvWrapper
from gem_core.wrappers.wrapper_factory import get_wrapper_fns


class ReverseEnv(Env):
    """A GEM-style environment: ``reset(seed)`` only, ``super().reset`` for the seeding, an int reward."""

    def __init__(self, length: int = 4, max_turns: int = 3) -> None:
        super().__init__()
        self.length = length
        self.max_turns = max_turns

    def reset(self, seed=None):  # type: ignore[no-untyped-def, override]
        super().reset(seed)
        self.turn = 0
        self.word = "".join(self.rng.choice("abcd") for _ in range(self.length))
        return f"Reverse {self.word}.", {"suffix": "Answer:"}

    def step(self, action):  # type: ignore[no-untyped-def, override]
        self.turn += 1
        if action.strip() == self.word[::-1]:
            return "Right.", 1, True, False, {}
        if self.turn >= self.max_turns:
            return "No turns left.", 0, False, True, {}
        return f"{action} is wrong.", 0, False, False, {"suffix": "Answer:"}

    def sample_random_action(self) -> str:
        return "".join(random.choice("abcd") for _ in range(self.length))


@pytest.fixture
def own_env() -> Iterator[str]:
    gem.register("custom:Reverse", ReverseEnv, length=5)
    yield "custom:Reverse"
    gem.unregister("custom:Reverse")


def test_make_and_play() -> None:
    env = gem.make("game:GuessTheNumber-v0-hard")
    observation, _ = env.reset()
    assert observation
    for _ in range(100):
        observation, _reward, terminated, truncated, _info = env.step(env.sample_random_action())
        assert isinstance(observation, str)
        if terminated or truncated:
            break
    else:
        pytest.fail("the episode never ended")


def test_register_and_make_an_own_environment(own_env: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = gem.make(own_env, max_turns=2)
    observation, _ = env.reset(seed=7)
    assert (env.length, env.max_turns) == (5, 2)  # type: ignore[attr-defined]
    assert env.reset(seed=7)[0] == observation
    word = observation.removeprefix("Reverse ").removesuffix(".")
    assert env.step("zzzzz")[:4] == ("zzzzz is wrong.", 0, False, False)
    assert env.step(word[::-1])[:4] == ("Right.", 1, True, False)
    gem.print_envs()
    assert own_env in capsys.readouterr().out


@pytest.mark.parametrize("async_mode", [False])
def test_vectorised_with_wrappers_by_name(own_env: str, async_mode: bool) -> None:
    wrappers = get_wrapper_fns("concat_with_action,episode_tracking")
    vec = gem.make_vec(
        [own_env, own_env, "game:GuessTheNumber-v0"],
        wrappers=wrappers,
        vec_kwargs=[{"max_turns": 2}, {"max_turns": 3}, {"max_turns": 4}],
        async_mode=async_mode,
    )
    observations, infos = vec.reset(seed=[1, 2, 3])
    assert len(observations) == len(infos) == 3
    assert observations[0].startswith("Reverse ")
    assert observations[0].endswith("\nAnswer:")
    ended = 0
    for turn in range(1, 8):
        observations, rewards, terminated, truncated, infos = vec.step(["wrong", "wrong", r"\boxed{21}"])
        assert rewards.shape == terminated.shape == truncated.shape == (3,)
        if turn == 1:
            assert "\nwrong\nwrong is wrong.\nAnswer:" in observations[0]
            assert [info["step_counter"] for info in infos] == [1, 1, 1]
        ended += int((terminated | truncated).sum())
    assert ended == 3 + 2 + 1
    vec.close()


def test_tools_wrap_an_environment() -> None:
    from gem_core.tools.python_code_tool import PythonCodeTool
    from gem_core.tools.tool_env_wrapper import ToolEnvWrapper

    env: Env = gem.make("game:GuessTheNumber-v0")
    env = ToolEnvWrapper(env, tools=[PythonCodeTool(timeout=5)], tool_reward=0.05, tool_success_reward=0.25)
    assert isinstance(env, EnvWrapper)
    observation, info = env.reset(seed=0)
    assert info["tool_use_counter"] == 0
    assert "python" in observation
    observation, reward, terminated, truncated, info = env.step("Let me see. <python>print(6 * 7)</python>")
    assert "42" in observation
    assert reward == pytest.approx(0.3)
    assert (terminated, truncated) == (False, False)
    assert info["use_tool"] is True
    assert info["parsed_action"] == "Let me see. <python>print(6 * 7)</python>"
    assert (info["tool_use_counter"], info["tool_success_counter"]) == (1, 1)
    env.close()


def test_tools_are_built_with_gem_arguments() -> None:
    from gem_core.tools.python_code_tool import PythonCodeTool
    from gem_core.tools.search_tool import SearchTool

    assert PythonCodeTool(timeout=5, sandbox_type="none", keep_error_last_line=True).instruction_string()
    tool = SearchTool(num_workers=1, search_url="http://127.0.0.1:9/retrieve", topk=3, timeout=5)
    assert tool.execute_action("no query")[0] is False
    tool.close()

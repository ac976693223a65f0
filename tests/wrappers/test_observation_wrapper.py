from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import observation_scripts
import pytest

import gem_core
from gem_core.core import Env
from gem_core.wrappers.max_history import MaxHistory
from gem_core.wrappers.observation_wrapper import ObservationWrapper
from gem_core.wrappers.wrapper_factory import get_wrapper_fns

#: Written by GEM 0.1.0 itself for the scripts and settings of ``tests/observation_scripts.py``.
GEM_0_1: dict[str, list[str]] = json.loads((Path(__file__).parent / "gem_0_1_observations.json").read_text("utf-8"))


def wrap(setting: str, script: str, **kwargs: Any) -> ObservationWrapper:
    settings = {**observation_scripts.SETTINGS[setting], **kwargs}
    if "chat" in setting:
        settings["tokenizer"] = observation_scripts.Template()
    return ObservationWrapper(observation_scripts.scripted_env(Env, script), **settings)


@pytest.mark.parametrize("case", sorted(GEM_0_1))
def test_texts_are_those_of_gem_0_1(case: str) -> None:
    setting, script = case.split("/")
    assert (
        observation_scripts.play(wrap(setting, script), len(observation_scripts.SCRIPTS[script]) - 1) == GEM_0_1[case]
    )


def test_what_is_written_leaves_info_so_that_nothing_appends_it_again() -> None:
    env = wrap("concat", "prefix")
    observation, info = env.reset(seed=0)
    assert observation == "[day 1] Start.\n [end]"
    assert "suffix" not in info
    assert "prefix" not in info
    outer = ObservationWrapper(env, include_action=False, include_chat_template=False)
    assert outer.reset(seed=0)[0].count("[end]") == 1


def test_reset_leaves_the_inner_environments_info_as_it_was() -> None:
    class Keeps(Env):
        """Gives out the same dict at every reset."""

        def __init__(self) -> None:
            super().__init__()
            self.info = {"suffix": "Move?"}

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
            super().reset(seed, options)
            return "Rules.", self.info

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "Over.", 1.0, True, False, {}

    template = observation_scripts.Template()
    env = ObservationWrapper(
        Keeps(),
        apply_chat_template_on_reset=True,
        include_action=False,
        include_chat_template=False,
        suffix_position="message",
        tokenizer=template,
    )
    assert "Move?" in env.reset(seed=0)[0]
    assert "Move?" in env.reset(seed=1)[0]


def test_the_session_shows_the_suffix_once() -> None:
    env = get_wrapper_fns("concat_with_action")[0](gem_core.make("game:GuessTheNumber-v0"))
    session = gem_core.EpisodeSession(env, seed=3, context="rebuild")
    prompt = session.start()
    assert prompt is not None
    prompt = session.submit(gem_core.Generation(text=r"\boxed{21}"))
    assert prompt is not None
    text = prompt.messages[-1]["content"]
    assert text.count("Guess 2 of 10") == 1
    assert r"\boxed{21}" in text
    assert text.startswith("A number between 1 and 20")


def test_suffix_can_go_inside_the_chat_message() -> None:
    env = wrap("concat_chat", "suffix", suffix_position="message")
    assert env.reset(seed=0)[0] == "<user>Rules of the game.\nMove 1?</user>\n<assistant>"
    assert env.step("left")[0] == (
        "<user>Rules of the game.</user>\n<assistant>left</assistant>\n"
        "<user>Moved left.\nBoard:\n x.\nMove 2?\n</user>\n<assistant>"
    )
    env = wrap("concat_chat_on_reset", "suffix", suffix_position="message")
    assert env.reset(seed=0)[0] == "<user>Rules of the game.\nMove 1?</user>\n<assistant>\n"


@pytest.mark.parametrize("setting", sorted(observation_scripts.SETTINGS))
def test_state_round_trips_through_json_into_a_spawned_sibling(setting: str) -> None:
    env = wrap(setting, "suffix")
    env.reset(seed=0)
    env.step("one")
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    copy = env.spawn(same_state=True)
    for action in ("two", "three"):
        expected = env.step(action)
        assert sibling.step(action) == expected
        assert copy.step(action) == expected


def test_a_window_of_zero_shows_the_newest_observation_only() -> None:
    env = MaxHistory(observation_scripts.scripted_env(Env, "suffix"), max_history_length=0)
    assert observation_scripts.play(env, 2) == [
        "Rules of the game.\nMove 1?",
        "Moved left.\nBoard:\n x.\nMove 2?\n",
        "Moved up.\nMove 3?",
    ]


def test_reset_options_reach_the_environment() -> None:
    env = wrap("concat", "plain")
    with pytest.raises(TypeError):  # a GEM-style reset(self, seed) takes none
        env.reset(seed=0, options={"index": 1})
    assert env.reset(seed=0, options={})[0] == "Find the door.\n"


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [
        ({}, "tokenizer"),
        ({"include_chat_template": True, "include_action": False}, "include_action"),
        ({"apply_chat_template_on_reset": True}, "exclude"),
        ({"include_chat_template": False, "apply_chat_template_on_reset": True}, "tokenizer"),
        ({"include_chat_template": False, "max_history_length": -1}, "-1"),
        ({"include_chat_template": False, "max_history_length": True}, "True"),
        ({"include_chat_template": False, "suffix_position": "middle"}, "middle"),
    ],
)
def test_bad_options_are_named(kwargs: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ObservationWrapper(observation_scripts.scripted_env(Env, "plain"), **kwargs)


def test_unknown_attributes_come_from_the_environment() -> None:
    env = get_wrapper_fns("concat,episode_tracking")[1](wrap("concat", "plain"))
    assert env.script is observation_scripts.SCRIPTS["plain"]  # type: ignore[attr-defined]
    assert type(env.unwrapped).__name__ == "Scripted"

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import gem_core
from gem_core.wrappers.time_limit import TimeLimit
from gem_core.wrappers.wrapper_factory import WRAPPER_FACTORY, get_wrapper_fns

GEM_NAMES = [
    "python_tool",
    "python_tool_no_int_reward",
    "python_tool_no_int_reward_last_line_error",
    "search_tool",
    "search_tool_no_int_reward",
    "concat",
    "concat_chat",
    "concat_with_action",
    "concat_chat_on_reset",
    "episode_tracking",
]


class Template:
    chat_template = "x"

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: object) -> str:
        return "|".join(m["content"] for m in conversation)


def test_gem_names_are_all_there() -> None:
    assert set(GEM_NAMES) <= set(WRAPPER_FACTORY)


@pytest.mark.parametrize("name", sorted(WRAPPER_FACTORY))
def test_every_name_gives_a_picklable_callable(name: str) -> None:
    (fn,) = get_wrapper_fns(name)
    assert callable(pickle.loads(pickle.dumps(fn)))


def test_nothing_asked_for_gives_nothing() -> None:
    assert get_wrapper_fns("") == []


def test_wrappers_apply_innermost_first() -> None:
    env = gem_core.make("game:GuessTheNumber-v0")
    for fn in get_wrapper_fns("concat_chat, episode_tracking", tokenizer=Template()):  # type: ignore[arg-type]
        env = fn(env)
    observation, info = env.reset(seed=0)
    assert info["step_counter"] == 0
    assert observation.endswith("Guess 1 of 10: enter a number as \\boxed{number}.")


@pytest.mark.parametrize(("name", "near"), [("concat_chatt", "concat_chat"), ("pythontool", "python_tool")])
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        get_wrapper_fns(f"episode_tracking,{name}")


def test_arguments_follow_the_name() -> None:
    limit, window = get_wrapper_fns("time_limit:max_turns=2,concat:max_history_length=1")
    env = limit(gem_core.make("game:GuessTheNumber-v0"))
    assert isinstance(env, TimeLimit)
    assert env.max_turns == 2
    assert window(env).max_history_length == 1  # type: ignore[attr-defined]
    (search,) = get_wrapper_fns("search_tool:topk=5:search_url=http://127.0.0.1:8000/retrieve")
    assert search.keywords["search_url"] == "http://127.0.0.1:8000/retrieve"  # type: ignore[attr-defined]
    assert search.keywords["topk"] == 5  # type: ignore[attr-defined]


def test_unknown_and_malformed_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'max_turns'"):
        get_wrapper_fns("time_limit:max_turn=2")
    with pytest.raises(ValueError, match="concat:4"):
        get_wrapper_fns("concat:4")


def test_a_tokenizer_may_be_given_later_and_must_be_given() -> None:
    (fn,) = get_wrapper_fns("concat_chat")
    env = gem_core.make("game:GuessTheNumber-v0")
    with pytest.raises(ValueError, match="tokenizer"):
        fn(env)
    assert fn(env, tokenizer=Template()).reset(seed=0)[0]  # type: ignore[call-arg]


def test_observation_wrappers_do_not_load_the_tools() -> None:
    code = (
        "import sys; from gem_core.wrappers.wrapper_factory import get_wrapper_fns; "
        "get_wrapper_fns('concat,search_tool'); "
        "print([m for m in sys.modules if m.startswith('gem_core.tools') or m in ('httpx', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"

from __future__ import annotations

import json

import pytest

import gem_core
from gem_core.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem_core.wrappers.time_limit import TimeLimit

ILLEGAL = r"\boxed{999}"


def game(limit: int) -> TimeLimit:
    return TimeLimit(gem_core.make("game:GuessTheNumber-v0", max_turns=10), max_turns=limit)


def test_the_limit_truncates_and_asks_for_nothing_more() -> None:
    env = game(3)
    env.reset(seed=1)
    for _ in range(2):
        *_, terminated, truncated, info = env.step(ILLEGAL)
        assert (terminated, truncated) == (False, False)
        assert "suffix" in info
    *_, terminated, truncated, info = env.step(ILLEGAL)
    assert (terminated, truncated) == (False, True)
    assert "suffix" not in info
    with pytest.raises(RuntimeError, match="reset"):
        env.step(ILLEGAL)
    env.reset()
    assert env.step(ILLEGAL)[3] is False


def test_an_end_by_the_rules_on_the_last_turn_is_not_truncated() -> None:
    env = game(1)
    env.reset(seed=1)
    *_, terminated, truncated, _ = env.step("no box")
    assert (terminated, truncated) == (True, False)


@pytest.mark.parametrize("bad", [0, -1, True, 2.5, None])
def test_bad_limits_are_named(bad: object) -> None:
    with pytest.raises(ValueError, match=repr(bad)):
        TimeLimit(gem_core.make("game:GuessTheNumber-v0"), max_turns=bad)  # type: ignore[arg-type]


def test_tracking_counts_and_remembers_the_episode_before() -> None:
    env = EpisodeTrackingWrapper(game(3))
    _, info = env.reset(seed=1)
    assert (info["step_counter"], info["prev_ep_step_counter"]) == (0, 0)
    total = 0.0
    for n in range(1, 4):
        _, reward, _, _, info = env.step(r"\boxed{1}")
        total += reward
        assert info["step_counter"] == n
        assert info["cumulative_rewards"] == pytest.approx(total)
    _, info = env.reset()
    assert info["prev_ep_step_counter"] == 3
    assert info["prev_ep_cumulative_rewards"] == pytest.approx(total)
    assert info["cumulative_rewards"] == 0.0


def test_counters_are_part_of_the_state() -> None:
    env = EpisodeTrackingWrapper(game(3))
    env.reset(seed=1)
    env.step(ILLEGAL)
    env.step(ILLEGAL)
    sibling = env.spawn()
    sibling.set_state(json.loads(json.dumps(env.get_state())))
    assert sibling.step(ILLEGAL) == env.step(ILLEGAL)
    assert env.step_counter == sibling.step_counter == 3
    with pytest.raises(RuntimeError):
        sibling.step(ILLEGAL)


def test_spawned_siblings_share_nothing() -> None:
    env = EpisodeTrackingWrapper(game(3))
    env.reset(seed=1)
    env.step(ILLEGAL)
    sibling = env.spawn(max_turns=5)
    sibling.reset(seed=1)
    assert sibling.step_counter == 0
    assert sibling.unwrapped.max_turns == 5  # type: ignore[attr-defined]
    assert env.step_counter == 1

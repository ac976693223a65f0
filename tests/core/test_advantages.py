"""Advantage estimators against brute force and against properties that must hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_core import Episode, StopReason, Turn
from gem_core import advantages as adv

rewards_strategy = st.lists(st.lists(st.floats(-5, 5), max_size=6), min_size=1, max_size=8)
gammas = st.sampled_from([0.0, 0.5, 0.8, 1.0])


def brute_returns(rewards: list[float], gamma: float) -> list[float]:
    return [sum(r * gamma**k for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def groups_for(n: int) -> list[str]:
    return [f"g{i // 3}" for i in range(n)]


@settings(deadline=None)
@given(rewards=rewards_strategy, gamma=gammas)
def test_returns_are_the_discounted_sums(rewards: list[list[float]], gamma: float) -> None:
    for row, got in zip(rewards, adv.reinforce(rewards, gamma=gamma), strict=True):
        assert got == pytest.approx(brute_returns(row, gamma), abs=1e-9)
        assert adv.discounted_returns(row, gamma).shape == (len(row),)
    episode = Episode("e", turns=[Turn("o", "a", r) for r in rewards[0]])
    assert episode.returns(gamma) == pytest.approx(brute_returns(rewards[0], gamma), abs=1e-9)


@settings(deadline=None)
@given(rewards=rewards_strategy, gamma=gammas)
def test_rebn_normalises_over_all_turns_of_the_batch(rewards: list[list[float]], gamma: float) -> None:
    flat = [g for row in rewards for g in brute_returns(row, gamma)]
    got = np.concatenate(adv.rebn(rewards, gamma=gamma))
    assert np.isfinite(got).all()
    spread = statistics.pstdev(flat) if flat else 0.0
    if spread > 1e-5:
        mean = statistics.fmean(flat)
        assert got == pytest.approx([(g - mean) / (spread + adv.EPS) for g in flat], abs=1e-6)
        assert got.mean() == pytest.approx(0.0, abs=1e-6)
        assert got.std() == pytest.approx(1.0, abs=1e-3)


@settings(deadline=None)
@given(rewards=rewards_strategy, cut=st.integers(0, 8), gamma=gammas)
def test_statistics_merge_so_that_ranks_agree(rewards: list[list[float]], cut: int, gamma: float) -> None:
    parts = [rewards[:cut], rewards[cut:]]
    sums = [adv.Moments.of([g for row in part for g in brute_returns(row, gamma)]) for part in parts]
    split = [a for part in parts for a in adv.rebn(part, gamma=gamma, reduce=lambda own: sums[0] + sums[1])]
    for a, b in zip(split, adv.rebn(rewards, gamma=gamma), strict=True):
        assert a == pytest.approx(b, abs=1e-6)


def test_reduce_is_called_once_even_for_an_empty_batch() -> None:
    calls: list[adv.Moments] = []

    def reduce(m: adv.Moments) -> adv.Moments:
        calls.append(m)
        return m

    assert adv.rebn([], reduce=reduce) == []
    assert len(calls) == 1  # a rank without episodes must not leave the others waiting in the all-reduce


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, -0.1, 1e6, 1 / 3])
@pytest.mark.parametrize("name", ["rebn", "grpo", "dr_grpo", "rloo", "grpo_turn", "rloo_turn"])
def test_equal_returns_give_zeros_never_nan(name: str, value: float) -> None:
    rewards = [[value]] * 7
    for a in adv.estimate(name, rewards, ["g"] * 7):
        assert abs(a[0]) <= (abs(value) * 1e-12 if name == "rloo_turn" else 0.0)


@settings(deadline=None)
@given(rewards=rewards_strategy)
def test_group_estimators_equal_brute_force(rewards: list[list[float]]) -> None:
    ids = groups_for(len(rewards))
    totals = [math.fsum(r) for r in rewards]
    grpo, dr, rloo = (adv.estimate(n, rewards, ids, gamma=0.5) for n in ("grpo", "dr_grpo", "rloo"))
    for i, group in enumerate(ids):
        mates = [t for t, g in zip(totals, ids, strict=True) if g == group]
        others = [t for j, (t, g) in enumerate(zip(totals, ids, strict=True)) if g == group and j != i]
        centred = totals[i] - statistics.fmean(mates)
        n = len(rewards[i])
        assert dr[i] == pytest.approx([centred] * n, abs=1e-9)
        scaled = centred / (statistics.stdev(mates) + 1e-4) if others else 0.0
        assert grpo[i] == pytest.approx([scaled] * n, rel=1e-6, abs=1e-6)
        left_out = totals[i] - statistics.fmean(others) if others else 0.0
        assert rloo[i] == pytest.approx([left_out] * n, abs=1e-9)


@settings(deadline=None)
@given(rewards=rewards_strategy, gamma=gammas)
def test_turn_level_group_estimators_equal_brute_force(rewards: list[list[float]], gamma: float) -> None:
    ids = groups_for(len(rewards))
    grpo, rloo = (adv.estimate(n, rewards, ids, gamma=gamma) for n in ("grpo_turn", "rloo_turn"))
    returns = [brute_returns(r, gamma) for r in rewards]
    for i, group in enumerate(ids):
        mates = [g for row, k in zip(returns, ids, strict=True) if k == group for g in row]
        others = [g for j, row in enumerate(returns) if ids[j] == group and j != i for g in row]
        spread = statistics.pstdev(mates) if mates else 0.0
        if spread > 1e-5:
            mean = statistics.fmean(mates)
            assert grpo[i] == pytest.approx([(g - mean) / (spread + adv.EPS) for g in returns[i]], abs=1e-5)
        base = statistics.fmean(others) if others else None
        expected = [0.0 if base is None else g - base for g in returns[i]]
        assert rloo[i] == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(
    rewards=st.lists(st.floats(-5, 5), max_size=8),
    gamma=gammas,
    lam=st.sampled_from([0.0, 0.5, 1.0]),
    bootstrap=st.floats(-2, 2),
    data=st.data(),
)
def test_gae_equals_the_sum_of_its_definition(
    rewards: list[float], gamma: float, lam: float, bootstrap: float, data: st.DataObject
) -> None:
    n = len(rewards)
    values = data.draw(st.lists(st.floats(-3, 3), min_size=n, max_size=n))
    got, targets = adv.gae(rewards, values, gamma=gamma, lam=lam, bootstrap=bootstrap)
    after = [*values[1:], bootstrap] if n else []
    deltas = [r + gamma * v2 - v for r, v, v2 in zip(rewards, values, after, strict=True)]
    expected = [sum(d * (gamma * lam) ** k for k, d in enumerate(deltas[t:])) for t in range(n)]
    assert got == pytest.approx(expected, abs=1e-9)
    assert targets == pytest.approx([a + v for a, v in zip(expected, values, strict=True)], abs=1e-9)


@pytest.mark.parametrize("name", sorted(adv.ESTIMATORS))
def test_one_turn_one_episode_and_unequal_lengths_have_the_right_shapes(name: str) -> None:
    for rewards in ([[1.0]], [[0.0, 1.0, -0.1]], [[1.0], [], [0.0, 0.5]]):
        got = adv.estimate(name, rewards, ["g"] * len(rewards), gamma=0.9)
        assert [a.shape for a in got] == [(len(r),) for r in rewards]
        assert all(np.isfinite(a).all() for a in got)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", sorted(adv.ESTIMATORS))
def test_rewards_that_are_not_numbers_are_refused_by_name(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=r"episode 1, turn 2: the reward is (nan|-?inf)"):
        adv.estimate(name, [[0.0], [0.0, 1.0, bad]], ["g", "g"])
    episodes = [Episode("game:X", episode_id="abc", turns=[Turn("o", "a", bad)])]
    with pytest.raises(ValueError, match=r"'abc' \(game:X\), turn 0: the reward is"):
        adv.estimate_episodes(name, episodes)


def test_failed_episodes_get_zeros_and_enter_no_statistic() -> None:
    def episode(rewards: list[float], reason: StopReason) -> Episode:
        return Episode("e", turns=[Turn("o", "a", r) for r in rewards], stop_reason=reason, group_id="g")

    good = [episode([0.0, 1.0], StopReason.TERMINATED), episode([0.5], StopReason.TRUNCATED)]
    failed = episode([100.0], StopReason.ENV_ERROR)
    for name in adv.ESTIMATORS:
        alone = adv.estimate_episodes(name, good, gamma=0.9)
        mixed = adv.estimate_episodes(name, [*good, failed], gamma=0.9)
        assert mixed[2].tolist() == [0.0]
        for a, b in zip(alone, mixed, strict=False):
            assert a.tolist() == b.tolist()
        kept = adv.estimate_episodes(name, [*good, failed], gamma=0.9, keep_failed=True)
        assert kept[2].tolist() != [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adv.estimate("ppo", [[1.0]]), "no advantage estimator is called 'ppo'; there are .*rebn"),
        (lambda: adv.estimate("grpo", [[1.0]]), "give group_ids"),
        (lambda: adv.estimate("rloo", [[1.0]], ["a", "b"]), "2 group ids for 1"),
        (lambda: adv.rebn([[1.0]], gamma=1.5), "gamma must lie in 0 to 1, got 1.5"),
        (lambda: adv.rebn([[1.0]], keep=[True, True]), "2 keep flags for 1"),
        (lambda: adv.gae([1.0], [], gamma=1.0), "1 rewards for 0 values"),
        (lambda: adv.gae([1.0], [math.nan]), "the value is nan"),
        (lambda: adv.gae([1.0], [1.0], lam=2.0), "lam must lie in 0 to 1"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.evaluation.statistics import bootstrap_means, estimate, pass_at_k, sign_flip_p


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_correct_answer(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    answers = [True] * correct + [False] * (n - correct)
    draws = [any(d) for d in itertools.combinations(answers, k)]
    assert pass_at_k(n, correct, k) == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_is_unbiased() -> None:
    """The mean over many sets of n answers is the chance that one of k is correct."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, 0.3, size=20_000)
    mean = float(np.mean([pass_at_k(8, int(c), 4) for c in counts]))
    assert mean == pytest.approx(1 - 0.7**4, abs=0.01)


@pytest.mark.parametrize(("n", "correct", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_of_impossible_numbers_is_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="between"):
        pass_at_k(n, correct, k)


def test_bootstrap_follows_from_its_seed_and_ignores_missing_numbers() -> None:
    rows = np.array([[1.0, np.nan], [0.0, 2.0], [1.0, 4.0], [0.0, np.nan]])
    a = bootstrap_means(rows, 500, np.random.default_rng(1))
    assert np.array_equal(a, bootstrap_means(rows, 500, np.random.default_rng(1)), equal_nan=True)
    assert a.shape == (500, 2)
    assert float(np.nanmean(a[:, 0])) == pytest.approx(0.5, abs=0.05)
    known = a[~np.isnan(a[:, 1]), 1]
    assert len(known) < 500  # some draws hold neither of the two tasks that have the second number
    assert 2.0 <= known.min() <= known.max() <= 4.0
    assert estimate(rows[:, 1], a[:, 1], 0.95).value == 3.0


def test_bootstrap_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(300):
        column = rng.binomial(1, 0.4, size=60).astype(float)
        e = estimate(column, bootstrap_means(column[:, None], 400, rng)[:, 0], 0.9)
        assert e.low is not None
        assert e.high is not None
        inside += e.low <= 0.4 <= e.high
    assert 0.84 <= inside / 300 <= 0.96


def test_one_task_has_no_interval() -> None:
    column = np.array([1.0])
    e = estimate(column, bootstrap_means(column[:, None], 100, np.random.default_rng(0))[:, 0], 0.95)
    assert (e.value, e.low, e.high, e.n) == (1.0, None, None, 1)
    assert math.isnan(estimate(np.array([np.nan]), np.array([np.nan]), 0.95).value)


def test_sign_flips_of_few_pairs_are_counted_exactly() -> None:
    rng = np.random.default_rng(0)
    assert sign_flip_p([np.ones(5)], 100, rng) == 2 / 32
    assert sign_flip_p([np.array([1.0, -1.0])], 100, rng) == 1.0
    assert sign_flip_p([np.zeros(9)], 100, rng) == 1.0  # no difference anywhere
    differences = np.array([3.0, 1.0, -2.0, 4.0])
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=4)
    ]
    assert sign_flip_p([differences], 100, rng) == sum(s >= 6 for s in sums) / 16


def test_sign_flips_of_many_pairs_are_drawn_and_never_give_zero() -> None:
    rng = np.random.default_rng(0)
    assert sign_flip_p([np.ones(50)], 1000, rng) == 1 / 1001
    p = [sign_flip_p([rng.normal(size=30)], 400, rng) for _ in range(200)]
    assert 0.02 <= float(np.mean(np.array(p) <= 0.1)) <= 0.2  # no difference: p is uniform


def test_groups_count_alike_whatever_their_size() -> None:
    rng = np.random.default_rng(0)
    small, large = np.full(4, 1.0), np.full(40, -0.1)
    assert sign_flip_p([small, large], 4000, rng) < 0.2  # the mean over groups is 0.45, that over pairs is 0

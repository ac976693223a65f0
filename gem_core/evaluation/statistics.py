"""Estimators: pass@k, bootstrap intervals, paired permutation tests. All random numbers come from a given seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Numbers in one block of resampled weights; bounds the memory.
_BLOCK = 2_000_000
#: Up to so many pairs all sign patterns are tried instead of drawn.
_EXACT_PAIRS = 14


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with its bootstrap interval."""

    value: float
    #: Ends of the interval; None where there are fewer than two tasks.
    low: float | None
    high: float | None
    #: Tasks that it is the mean of.
    n: int


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that one of ``k`` answers, drawn from ``n`` without replacement, is correct: ``1 - C(n-c,k)/C(n,k)``.

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, equation 1).

    Raises:
        ValueError: not ``0 <= correct <= n`` or not ``1 <= k <= n``.
    """
    if not 0 <= correct <= n:
        raise ValueError(f"correct must lie between 0 and n={n}, got {correct}")
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and n={n}, got {k}")
    if n - correct < k:
        return 1.0
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def bootstrap_means(rows: NDArray[np.float64], resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Means of resampled rows.

    Args:
        rows: One row a task, one column a metric, shape (tasks, metrics); NaN = the task has no such number.
        resamples: How many times the tasks are drawn again.
        rng: The source of the draws; all metrics see the same ones.

    Returns:
        Shape (resamples, metrics); NaN where a draw holds no task with that metric.
    """
    import numpy as np

    tasks = rows.shape[0]
    known = ~np.isnan(rows)
    values, weights = np.where(known, rows, 0.0), known.astype(float)
    out = []
    block = max(1, _BLOCK // max(tasks, 1))
    for start in range(0, resamples, block):
        draws = min(block, resamples - start)
        times = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=draws).astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            out.append((times @ values) / (times @ weights))
    return np.concatenate(out)


def estimate(column: NDArray[np.float64], replicates: NDArray[np.float64], confidence: float) -> Estimate:
    """The mean of a column with the percentile interval of its replicates; NaN values are left out."""
    import numpy as np

    known = column[~np.isnan(column)]
    if not len(known):
        return Estimate(math.nan, None, None, 0)
    value = math.fsum(known.tolist()) / len(known)
    low, high = interval(replicates, confidence) if len(known) > 1 else (None, None)
    return Estimate(value, low, high, len(known))


def interval(replicates: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """The percentile interval."""
    import numpy as np

    tail = (1.0 - confidence) / 2 * 100
    low, high = np.nanpercentile(replicates, [tail, 100 - tail])
    return float(low), float(high)


def sign_flip_p(groups: Sequence[NDArray[np.float64]], resamples: int, rng: np.random.Generator) -> float:
    """Two-sided p-value of paired differences by the permutation test that swaps the two sides of any pair.

    The statistic is the mean over groups (environments) of each group's mean difference. With few pairs all patterns
    are tried; else they are drawn, and the observed one counts as drawn too (Phipson and Smyth 2010), so that p is
    never 0.

    Args:
        groups: For each group the differences of its pairs, shape (pairs,).
        resamples: How many patterns are drawn.
        rng: The source of the draws.
    """
    import numpy as np

    scaled = np.concatenate([g / (len(g) * len(groups)) for g in groups])
    observed = abs(float(scaled.sum()))
    near = 1e-12 + 1e-9 * observed  # equal sums differ in their last bits
    pairs = scaled[scaled != 0.0]
    if not len(pairs):
        return 1.0
    if len(pairs) <= _EXACT_PAIRS:
        bits = np.arange(2 ** len(pairs))[:, None] >> np.arange(len(pairs)) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ pairs) >= observed - near))
    block = max(1, _BLOCK // len(pairs))
    hits = 0
    for start in range(0, resamples, block):
        signs = 1 - 2 * rng.integers(0, 2, size=(min(block, resamples - start), len(pairs)), dtype=np.int8)
        hits += int(np.sum(np.abs(signs @ pairs) >= observed - near))
    return (1 + hits) / (1 + resamples)

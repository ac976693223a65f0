"""Credit assignment: pure functions from the turns' rewards to one advantage a turn.

Every estimator takes the rewards of a batch of episodes, one sequence of turns each, and returns one float64 array a
turn, shapes ``(turns_i,)``. A turn's advantage goes to each of its sampled tokens
(:meth:`gem_core.episode.TokenSequence.spread`).

Statistics over the batch travel as :class:`Moments`, which add up, so data-parallel ranks share them with one
all-reduce of three numbers.

Sources: REINFORCE with return batch normalization (ReBN) from the GEM paper (arXiv 2510.01051, section 3); GRPO
(arXiv 2402.03300); its unbiased form Dr. GRPO (arXiv 2503.20783); RLOO (arXiv 2402.14740); GAE (arXiv 1506.02438).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gem_core.episode import Episode

Array = npt.NDArray[np.float64]
Rewards = Sequence[Sequence[float]]

#: Added to standard deviations; the value the paper's baselines use.
EPS = 1e-9
#: A spread below this share of the values' size is rounding error, not signal.
_RELATIVE_ZERO = 1e-14


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of squares of a set of numbers; ``a + b`` are those of the union."""

    count: float = 0.0
    total: float = 0.0
    total_sq: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float] | Array) -> Moments:
        x = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64)
        return cls(float(x.size), float(x.sum()), float(np.square(x).sum()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.count + other.count, self.total + other.total, self.total_sq + other.total_sq)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def std(self) -> float:
        """Population standard deviation; exactly 0.0 where all numbers are equal up to rounding."""
        if not self.count:
            return 0.0
        mean_sq = self.total_sq / self.count
        variance = mean_sq - self.mean**2
        return math.sqrt(variance) if variance > _RELATIVE_ZERO * mean_sq else 0.0

    def as_tuple(self) -> tuple[float, float, float]:
        """What an all-reduce (sum) shares."""
        return self.count, self.total, self.total_sq


#: Merges one rank's moments with all others', for data-parallel training.
Reduce = Callable[[Moments], Moments]


def discounted_returns(rewards: Sequence[float], gamma: float = 1.0) -> Array:
    """Return from each turn on: ``G_t = r_t + gamma * G_{t+1}``, shape (turns,).

    Raises:
        ValueError: a reward is not finite, or gamma is outside 0 to 1.
    """
    _check_gamma(gamma)
    _check_finite([rewards])
    out = np.empty(len(rewards), dtype=np.float64)
    acc = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        acc = rewards[t] + gamma * acc
        out[t] = acc
    return out


def reinforce(rewards: Rewards, *, gamma: float = 1.0, keep: Sequence[bool] | None = None) -> list[Array]:
    """The plain discounted return of each turn."""
    returns = _returns(rewards, gamma)
    return _masked(returns, _keep(keep, len(rewards)))


def rebn(
    rewards: Rewards, *, gamma: float = 1.0, keep: Sequence[bool] | None = None, reduce: Reduce | None = None
) -> list[Array]:
    """REINFORCE with return batch normalization: the returns of ALL turns in the batch, minus their mean, over their
    (population) standard deviation. Zero spread gives zeros.

    Args:
        rewards: Rewards of each episode's turns.
        gamma: Discount a turn.
        keep: Episodes left out (False: a failed one) get zeros and do not enter the statistics.
        reduce: Merges the statistics over data-parallel ranks; called exactly once, with an empty batch too.
    """
    returns = _returns(rewards, gamma)
    kept = _keep(keep, len(rewards))
    moments = Moments()
    for g, k in zip(returns, kept, strict=True):
        if k:
            moments += Moments.of(g)
    if reduce is not None:
        moments = reduce(moments)
    return _masked([normalize(g, moments) for g in returns], kept)


def normalize(values: Array, moments: Moments) -> Array:
    """``(values - mean) / (std + EPS)``; zeros where the spread is zero."""
    if moments.std == 0.0:
        return np.zeros_like(values)
    return (values - moments.mean) / (moments.std + EPS)


def grpo(
    rewards: Rewards,
    group_ids: Sequence[str],
    *,
    gamma: float = 1.0,
    keep: Sequence[bool] | None = None,
    scale: bool = True,
    ddof: int = 1,
    eps: float = 1e-4,
) -> list[Array]:
    """Group-relative: every turn of an episode gets its return, minus the group's mean, over the group's spread.

    Args:
        rewards: Rewards of each episode's turns.
        group_ids: The group of each episode. A group of one has nothing to compare with: zeros.
        gamma: Discount in the episode's return. Published GRPO has none (1.0).
        keep: See :func:`rebn`.
        scale: Divide by the group's standard deviation (False: Dr. GRPO).
        ddof: 1 = the unbiased standard deviation, as TRL and verl take it.
        eps: Added to it; TRL takes 1e-4, verl 1e-6.
    """
    totals = _totals(rewards, gamma)
    kept = _keep(keep, len(rewards))
    out = np.zeros(len(totals))
    for members in _groups(group_ids, kept):
        if np.ptp(totals[members]) == 0.0:  # the mean of equal numbers can differ from them by rounding
            continue
        centred = totals[members] - totals[members].mean()
        if scale and len(members) > ddof:
            centred = centred / (totals[members].std(ddof=ddof) + eps)
        out[members] = centred
    return _broadcast(out, rewards)


def dr_grpo(
    rewards: Rewards, group_ids: Sequence[str], *, gamma: float = 1.0, keep: Sequence[bool] | None = None
) -> list[Array]:
    """GRPO without the division by the group's spread, which favours groups that are nearly all right or all wrong."""
    return grpo(rewards, group_ids, gamma=gamma, keep=keep, scale=False)


def rloo(
    rewards: Rewards, group_ids: Sequence[str], *, gamma: float = 1.0, keep: Sequence[bool] | None = None
) -> list[Array]:
    """Leave-one-out: an episode's return minus the mean of the others' in its group (a group of one: zeros)."""
    totals = _totals(rewards, gamma)
    out = np.zeros(len(totals))
    for members in _groups(group_ids, _keep(keep, len(rewards))):
        n = len(members)
        if np.ptp(totals[members]) > 0.0:
            out[members] = (totals[members] - totals[members].mean()) * n / (n - 1)
    return _broadcast(out, rewards)


def grpo_turn(
    rewards: Rewards, group_ids: Sequence[str], *, gamma: float = 1.0, keep: Sequence[bool] | None = None
) -> list[Array]:
    """ReBN inside each group: the returns of all turns of the group's episodes, normalised over the group."""
    returns = _returns(rewards, gamma)
    kept = _keep(keep, len(rewards))
    out: list[Array] = [np.zeros_like(g) for g in returns]
    for members in _groups(group_ids, kept):
        moments = Moments.of(np.concatenate([returns[i] for i in members]))
        for i in members:
            out[i] = normalize(returns[i], moments)
    return out


def rloo_turn(
    rewards: Rewards, group_ids: Sequence[str], *, gamma: float = 1.0, keep: Sequence[bool] | None = None
) -> list[Array]:
    """Each turn's return minus the mean return over all turns of the OTHER episodes in its group.

    The baseline does not depend on the episode's own actions, so the gradient stays unbiased. A group of one: zeros.
    """
    returns = _returns(rewards, gamma)
    out: list[Array] = [np.zeros_like(g) for g in returns]
    for members in _groups(group_ids, _keep(keep, len(rewards))):
        sums = {i: (float(returns[i].sum()), len(returns[i])) for i in members}
        total, count = sum(s for s, _ in sums.values()), sum(n for _, n in sums.values())
        for i in members:
            own, n = sums[i]
            if count > n:
                out[i] = returns[i] - (total - own) / (count - n)
    return out


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: float = 0.0,
) -> tuple[Array, Array]:
    """Generalised advantage estimation over the turns of ONE episode.

    Args:
        rewards: Shape (turns,).
        values: The critic's value of the state each turn acted in, shape (turns,).
        gamma: Discount a turn.
        lam: 1.0 = Monte Carlo, 0.0 = one-step.
        bootstrap: Value after the last turn: 0.0 for a terminated episode, the critic's for a truncated one.

    Returns:
        ``(advantages, value_targets)``, both of shape (turns,).

    Raises:
        ValueError: lengths differ, a number is not finite, gamma or lam is outside 0 to 1.
    """
    _check_gamma(gamma)
    _check_gamma(lam, "lam")
    if len(rewards) != len(values):
        raise ValueError(f"{len(rewards)} rewards for {len(values)} values")
    _check_finite([rewards])
    _check_finite([[*values, bootstrap]], what="value")
    advantages = np.zeros(len(rewards))
    acc, after = 0.0, bootstrap
    for t in range(len(rewards) - 1, -1, -1):
        acc = rewards[t] + gamma * after - values[t] + gamma * lam * acc
        after = values[t]
        advantages[t] = acc
    return advantages, advantages + np.asarray(values, dtype=np.float64)


#: Estimators by name that need no critic.
ESTIMATORS: dict[str, Callable[..., list[Array]]] = {
    "reinforce": reinforce,
    "rebn": rebn,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "grpo_turn": grpo_turn,
    "rloo_turn": rloo_turn,
}
#: Those that compare episodes of one group.
GROUP_ESTIMATORS = frozenset({"grpo", "dr_grpo", "rloo", "grpo_turn", "rloo_turn"})
#: Those whose every turn counts with its own return; the others give all turns of an episode the same advantage.
TURN_ESTIMATORS = frozenset({"reinforce", "rebn", "grpo_turn", "rloo_turn"})


def estimate(
    name: str,
    rewards: Rewards,
    group_ids: Sequence[str] | None = None,
    *,
    gamma: float = 1.0,
    keep: Sequence[bool] | None = None,
    reduce: Reduce | None = None,
) -> list[Array]:
    """Runs the estimator called ``name``; see :data:`ESTIMATORS`.

    The episode-level ones (``grpo``, ``dr_grpo``, ``rloo``) are used as published, on the undiscounted return:
    ``gamma`` is for the turn-level ones. ``reduce`` is for ``rebn``; groups must lie within one rank.

    Raises:
        ValueError: unknown name, or a group estimator without ``group_ids``.
    """
    if name not in ESTIMATORS:
        raise ValueError(f"no advantage estimator is called {name!r}; there are {', '.join(sorted(ESTIMATORS))}")
    kwargs: dict[str, Any] = {"keep": keep}
    if name in TURN_ESTIMATORS:
        kwargs["gamma"] = gamma
    if name == "rebn":
        kwargs["reduce"] = reduce
    if name in GROUP_ESTIMATORS:
        if group_ids is None:
            raise ValueError(f"{name} compares the episodes of a group: give group_ids")
        if len(group_ids) != len(rewards):
            raise ValueError(f"{len(group_ids)} group ids for {len(rewards)} episodes")
        return ESTIMATORS[name](rewards, group_ids, **kwargs)
    return ESTIMATORS[name](rewards, **kwargs)


def estimate_episodes(
    name: str,
    episodes: Sequence[Episode],
    *,
    gamma: float = 1.0,
    keep_failed: bool = False,
    reduce: Reduce | None = None,
) -> list[Array]:
    """As :func:`estimate`, for episodes; failed ones get zeros and enter no statistic unless ``keep_failed``.

    Raises:
        ValueError: a reward is not finite; the message names the episode and the turn.
    """
    for e in episodes:
        for t, r in enumerate(e.rewards):
            if not math.isfinite(r):
                raise ValueError(f"episode {e.episode_id!r} ({e.env_id}), turn {t}: the reward is {r}")
    return estimate(
        name,
        [e.rewards for e in episodes],
        [e.group_id for e in episodes],
        gamma=gamma,
        keep=None if keep_failed else [not e.failed for e in episodes],
        reduce=reduce,
    )


# -- shared parts -------------------------------------------------------------------------------------------------


def _returns(rewards: Rewards, gamma: float) -> list[Array]:
    _check_finite(rewards)
    return [discounted_returns(r, gamma) for r in rewards]


def _totals(rewards: Rewards, gamma: float) -> Array:
    return np.asarray([g[0] if len(g) else 0.0 for g in _returns(rewards, gamma)], dtype=np.float64)


def _groups(group_ids: Sequence[str], kept: Sequence[bool]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i, (g, k) in enumerate(zip(group_ids, kept, strict=True)):
        if k:
            groups.setdefault(g, []).append(i)
    return list(groups.values())


def _broadcast(per_episode: Array, rewards: Rewards) -> list[Array]:
    return [np.full(len(r), a) for a, r in zip(per_episode, rewards, strict=True)]


def _masked(values: list[Array], kept: Sequence[bool]) -> list[Array]:
    return [v if k else np.zeros_like(v) for v, k in zip(values, kept, strict=True)]


def _keep(keep: Sequence[bool] | None, n: int) -> Sequence[bool]:
    if keep is None:
        return [True] * n
    if len(keep) != n:
        raise ValueError(f"{len(keep)} keep flags for {n} episodes")
    return keep


def _check_finite(rewards: Rewards, what: str = "reward") -> None:
    for i, row in enumerate(rewards):
        for t, r in enumerate(row):
            if not math.isfinite(r):
                raise ValueError(f"episode {i}, turn {t}: the {what} is {r}")


def _check_gamma(gamma: float, name: str = "gamma") -> None:
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"{name} must lie in 0 to 1, got {gamma!r}")

"""The shared contract episodes through gem_trl: tokens, masks, log probabilities, turn rewards and groups survive."""

from __future__ import annotations

import math
import os

import pytest
from contract import EOS, episodes

pytest.importorskip("trl")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from gem_trl.rollouts import rows_of, spread_over_rows

from gem_core.advantages import discounted_returns, estimate_episodes

EPISODES = episodes(50)


def test_every_token_mask_and_log_probability_is_a_row_of_its_episode() -> None:
    rows = rows_of(EPISODES, [True] * len(EPISODES), EOS)
    for index, episode in enumerate(EPISODES):
        mine = [r for r in rows if r.episode == index]
        fed: list[int] = []
        sampled: list[tuple[int, float]] = []
        for row in mine:
            assert len(row.completion_ids) == len(row.mask) == len(row.logprobs)
            columns = zip(row.completion_ids, row.mask, row.logprobs, strict=True)
            sampled += [(token, lp) for token, m, lp in columns if m]
            fed += row.prompt_ids + row.completion_ids
        turns = episode.turns
        assert sampled == [pair for t in turns for pair in zip(t.response_ids, t.logprobs, strict=True)]
        if mine:
            assert fed == [i for t in turns for i in (*t.context_ids, *t.response_ids)]


def test_rewards_on_their_turns_tokens_add_up_to_the_return() -> None:
    rows = rows_of(EPISODES, [True] * len(EPISODES), EOS)
    for index, episode in enumerate(EPISODES):
        mine = [r.sequence for r in rows if r.episode == index and r.sequence is not None]
        if not mine:
            continue
        assert math.fsum(x for s in mine for x in s.rewards) == pytest.approx(episode.total_reward)
        if all(t.response_ids for t in episode.turns):
            placed = [
                x
                for s in mine
                for x, m, nxt in zip(s.rewards, s.turn_index, [*s.turn_index[1:], -1], strict=True)
                if m >= 0 and nxt != m
            ]
            assert placed == pytest.approx(episode.rewards)


@pytest.mark.parametrize("name", ["reinforce", "rebn"])
def test_each_sampled_token_carries_its_own_turns_value(name: str) -> None:
    rows = rows_of(EPISODES, [True] * len(EPISODES), EOS)
    width = max(len(r.mask) for r in rows)
    per_turn = estimate_episodes(name, EPISODES, gamma=0.9, keep_failed=True)
    if name == "reinforce":
        assert all(
            a == pytest.approx(discounted_returns(e.rewards, 0.9)) for a, e in zip(per_turn, EPISODES, strict=True)
        )
    matrix = spread_over_rows(rows, per_turn, width)
    for index, episode in enumerate(EPISODES):
        got = [
            v for i, r in enumerate(rows) if r.episode == index for v, m in zip(matrix[i], r.mask, strict=False) if m
        ]
        expected = [float(per_turn[index][t]) for t, turn in enumerate(episode.turns) for _ in turn.response_ids]
        assert got == pytest.approx(expected, abs=1e-6)
    environment = [
        v for i, r in enumerate(rows) for v, m in zip(matrix[i], [*r.mask, *[0] * width], strict=False) if not m
    ]
    assert environment
    assert not any(environment)


def test_group_estimators_compare_within_the_episodes_own_group() -> None:
    rows = rows_of(EPISODES, [True] * len(EPISODES), EOS)
    matrix = spread_over_rows(
        rows, estimate_episodes("rloo", EPISODES, gamma=1.0, keep_failed=True), max(len(r.mask) for r in rows)
    )
    for index, episode in enumerate(EPISODES):
        others = [
            e.total_reward for e in EPISODES if e.group_id == episode.group_id and e.episode_id != episode.episode_id
        ]
        baseline = sum(others) / len(others)
        for i, row in enumerate(rows):
            if row.episode == index:
                values = [v for v, m in zip(matrix[i], row.mask, strict=False) if m]
                assert values == pytest.approx([episode.total_reward - baseline] * len(values), abs=1e-5)


def test_an_episode_left_out_keeps_its_tokens_and_trains_nothing() -> None:
    rows = rows_of(EPISODES, [i % 2 == 0 for i in range(len(EPISODES))], EOS)
    for row in rows:
        if row.episode % 2:
            assert not any(row.mask)

"""The shared contract episodes through gem_verl: tokens, masks, log probabilities, turn rewards and groups survive."""

from __future__ import annotations

import math

import gem_verl
import pytest
import torch
from contract import episodes
from gem_verl._compat import agent_loop_manager
from gem_verl.advantages import spread, turn_level, turn_spans
from gem_verl.output import rows
from gem_verl.settings import GemSettings

from gem_core.advantages import discounted_returns, estimate_episodes

SETTINGS = GemSettings(env_id="test:Script-v0", failed_loss="keep")
EPISODES = episodes(50)
ROWS = [[r.as_dict() for r in rows(e, SETTINGS, gamma=0.9)] for e in EPISODES]

pytestmark = pytest.mark.l1


def test_everything_named_is_there() -> None:
    for name in gem_verl.__all__:
        assert getattr(gem_verl, name) is not None
    assert issubclass(gem_verl.GemRolloutWorker, agent_loop_manager())


def test_every_token_mask_and_log_probability_is_a_row_of_its_episode() -> None:
    for episode, mine in zip(EPISODES, ROWS, strict=True):
        fed: list[int] = []
        sampled: list[int] = []
        logprobs: list[float] = []
        for row in mine:
            assert len(row["responses"]) == len(row["response_mask"]) == len(row["rollout_log_probs"])
            on = row["response_mask"].bool()
            sampled += row["responses"][on].tolist()
            logprobs += row["rollout_log_probs"][on].tolist()
            assert row["rollout_log_probs"][~on].abs().sum() == 0
            fed += row["prompts"].tolist() + row["responses"].tolist()
        turns = episode.turns
        assert sampled == [i for t in turns for i in t.response_ids]
        assert logprobs == pytest.approx([x for t in turns for x in t.logprobs], abs=1e-6)
        if sampled:
            assert fed == [i for t in turns for i in (*t.context_ids, *t.response_ids)]


def test_rewards_sit_on_their_turns_last_tokens_and_add_up_to_the_return() -> None:
    for episode, mine in zip(EPISODES, ROWS, strict=True):
        if len(mine) > 1 or not episode.num_sampled_tokens:
            continue  # several rows carry what comes after them too: test_rows.py
        (row,) = mine
        assert math.fsum(row["rm_scores"].tolist()) == pytest.approx(episode.total_reward, abs=1e-5)
        ends = [b - 1 for a, b in turn_spans(row["response_mask"][None])[0]]
        if all(t.response_ids for t in episode.turns):
            assert row["rm_scores"][ends].tolist() == pytest.approx(episode.rewards, abs=1e-6)


@pytest.mark.parametrize("name", ["reinforce", "rebn", "grpo_turn", "rloo_turn"])
def test_each_sampled_token_carries_its_own_turns_value(name: str) -> None:
    batch = [e for e in episodes(50, several_sequences=False) if all(t.response_ids for t in e.turns)]
    made = [rows(e, SETTINGS)[0].as_dict() for e in batch]
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([r["response_mask"] for r in made], batch_first=True)
    rewards = pad([r["rm_scores"] for r in made], batch_first=True)
    advantages, returns = turn_level(name, rewards, mask, [e.group_id for e in batch], {"gamma": 0.9})
    expected = estimate_episodes(name, batch, gamma=0.9, keep_failed=True)
    spans = turn_spans(mask)
    assert torch.allclose(advantages, spread(expected, spans, rewards), atol=1e-5)
    per_turn = [discounted_returns(e.rewards, 0.9) for e in batch]
    assert torch.allclose(returns, spread(per_turn, spans, rewards), atol=1e-5)
    assert not advantages[mask == 0].any()


def test_an_episode_left_out_keeps_its_tokens_and_trains_nothing() -> None:
    settings = GemSettings(env_id="test:Script-v0", failed_loss="mask", truncated_loss="mask")
    for episode, mine in zip(EPISODES, ROWS, strict=True):
        made = [r.as_dict() for r in rows(episode, settings)]
        assert [r["responses"].tolist() for r in made] == [r["responses"].tolist() for r in mine]
        out = episode.failed or not episode.terminated
        assert all(
            (not r["response_mask"].any()) == out or not m["response_mask"].any()
            for r, m in zip(made, mine, strict=True)
        )

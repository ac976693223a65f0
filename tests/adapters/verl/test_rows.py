"""What verl receives, compared field by field with the episodes that made it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import numpy as np
import pytest
import torch
from contract import episodes
from gem_verl._compat import agent_loop_manager
from gem_verl.advantages import spread, turn_level, turn_level_gae, turn_rewards, turn_spans
from gem_verl.output import masked, rows
from gem_verl.settings import GemSettings

from gem_core import advantages as adv

SETTINGS = GemSettings(env_id="game:GuessTheNumber-v0", failed_loss="keep")
EPISODES = episodes(200, seed=1)

pytestmark = pytest.mark.l2


def padded(dicts: list[dict[str, Any]], key: str) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([d[key] for d in dicts], batch_first=True)


def test_every_field_of_200_episodes() -> None:
    several = failed = 0
    for episode in EPISODES:
        sequences = [s for s in episode.to_sequences() if s.response_ids]
        made = rows(episode, SETTINGS, gamma=0.9, estimator="gem_rebn")
        assert len(made) == max(1, len(sequences))
        several += len(sequences) > 1
        failed += episode.failed
        for row, sequence in zip(made, sequences, strict=False):
            d = row.as_dict()
            assert d["prompts"].tolist() == sequence.prompt_ids
            assert d["responses"].tolist() == sequence.response_ids
            assert d["response_mask"].tolist() == sequence.response_mask
            assert d["rollout_log_probs"].tolist() == pytest.approx(sequence.logprobs, abs=1e-6)
            assert d["rm_scores"].shape == d["responses"].shape
            assert d["rm_scores"][d["response_mask"] == 0].abs().sum() == 0
            assert "token_rewards" not in d
            if len(sequences) == 1:
                assert d["rm_scores"].tolist() == pytest.approx(sequence.rewards, abs=1e-6)
            assert d["num_turns"] == 2 * len(episode.turns) + 1
            assert d["extra_fields"]["reward_extra_info"]["return"] == episode.total_reward
            assert d["extra_fields"]["gem_stop_reason"] == str(episode.stop_reason)
    assert several > 20
    assert failed > 5


def test_the_tensors_that_verl_puts_into_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own agent loop worker takes the rows of 200 episodes; only the queue at its end is replaced."""
    module = sys.modules[agent_loop_manager().__module__]
    worker = object.__new__(module.AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    vars(worker).update(processor=None, reward_loop_worker_handles=[], distillation_enabled=False)
    queue: dict[str, tuple[Any, dict[str, Any]]] = {}

    async def put(keys: list[str], fields: Any, tags: list[dict[str, Any]], partition_id: str) -> None:
        assert partition_id == "train"
        queue.update({k: (fields[i], tags[i]) for i, k in enumerate(keys)})

    monkeypatch.setattr(module.tq, "async_kv_batch_put", put)
    for i, episode in enumerate(EPISODES):
        made = rows(episode, SETTINGS, gamma=0.9, extra_fields={"min_global_steps": 3, "max_global_steps": 4})
        wanted = [r.as_dict() for r in made]
        row = {"uid": f"u{i}", "session_id": i % 4, "global_steps": 4, "env_seed": episode.seed, "raw_prompt": []}
        asyncio.run(worker._agent_loop_postprocess(made, False, **row))
        for j, want in enumerate(wanted):
            got, tag = queue[f"u{i}_{i % 4}_{j}"]
            for name in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores"):
                assert got[name].tolist() == want[name].tolist(), name
            assert got["loss_mask"].tolist() == want["response_mask"].tolist()
            assert got["input_ids"].tolist() == want["prompts"].tolist() + want["responses"].tolist()
            assert got["position_ids"].tolist() == list(range(len(got["input_ids"])))
            assert (tag["prompt_len"], tag["response_len"]) == (len(want["prompts"]), len(want["responses"]))
            assert (tag["min_global_steps"], tag["max_global_steps"], tag["global_steps"]) == (3, 4, 4)
            assert got["env_seed"] == episode.seed
    assert len(queue) == sum(len(rows(e, SETTINGS)) for e in EPISODES)


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.5])
def test_each_turns_return_survives_several_sequences(gamma: float) -> None:
    for episode in EPISODES:
        if any(not t.response_ids for t in episode.turns):
            continue  # a turn without tokens has no place of its own in any row
        dicts = [r.as_dict() for r in rows(episode, SETTINGS, gamma=gamma)]
        mask = padded(dicts, "response_mask")
        spans = turn_spans(mask)
        got = [g for row in turn_rewards(padded(dicts, "rm_scores"), spans) for g in adv.discounted_returns(row, gamma)]
        assert got == pytest.approx(episode.returns(gamma), abs=1e-5)


def test_verls_own_grpo_reads_the_episodes_score_from_the_last_row() -> None:
    for episode in EPISODES:
        last = rows(episode, SETTINGS, estimator="grpo")[-1].as_dict()
        if episode.num_sampled_tokens:
            assert float(last["rm_scores"].sum()) == pytest.approx(episode.total_reward, abs=1e-4)


@pytest.mark.parametrize("name", ["rebn", "reinforce", "grpo_turn", "rloo_turn"])
def test_the_registered_estimators_equal_the_reference(name: str) -> None:
    import gem_verl.plugin  # noqa: F401
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    batch = [e for e in episodes(64, seed=2, several_sequences=False) if all(t.response_ids for t in e.turns)]
    dicts = [rows(e, SETTINGS)[0].as_dict() for e in batch]
    mask = padded(dicts, "response_mask")
    rewards = padded(dicts, "rm_scores")
    advantages, returns = get_adv_estimator_fn(f"gem_{name}")(
        token_level_rewards=rewards,
        response_mask=mask,
        index=np.array([e.group_id for e in batch], dtype=object),
        config={"gamma": 0.9},
    )
    expected = adv.estimate_episodes(name, batch, gamma=0.9, keep_failed=True)
    for i, (episode, per_turn) in enumerate(zip(batch, expected, strict=True)):
        (sequence,) = episode.to_sequences()
        n = len(sequence.response_ids)
        assert advantages[i, :n].tolist() == pytest.approx(sequence.spread(per_turn.tolist()), abs=1e-5)
        assert advantages[i, n:].abs().sum() == 0
        assert returns[i, :n].tolist() == pytest.approx(sequence.spread(episode.returns(0.9)), abs=1e-5)
    assert (advantages * (1 - mask)).abs().sum() == 0
    assert max(len(set(advantages[i][mask[i] == 1].tolist())) for i in range(len(batch))) > 5  # differs by turn


def test_verls_own_estimators_run_on_gem_rows_and_grpo_rloo_equal_ours() -> None:
    from verl.trainer.ppo import core_algos

    batch = [e for e in episodes(64, seed=3, several_sequences=False) if all(t.response_ids for t in e.turns)]
    groups = [e.group_id for e in batch]
    keep = [groups.count(g) == 4 for g in groups]
    batch = [e for e, k in zip(batch, keep, strict=True) if k]
    dicts = [rows(e, SETTINGS)[0].as_dict() for e in batch]
    mask, rewards = padded(dicts, "response_mask"), padded(dicts, "rm_scores")
    index = np.array([e.group_id for e in batch], dtype=object)
    theirs = {
        "grpo": core_algos.compute_grpo_outcome_advantage(rewards, mask, index)[0],
        "rloo": core_algos.compute_rloo_outcome_advantage(rewards, mask, index)[0],
    }
    ours = {
        "grpo": adv.grpo([e.rewards for e in batch], index.tolist(), eps=1e-6),
        "rloo": adv.rloo([e.rewards for e in batch], index.tolist()),
    }
    for name, got in theirs.items():
        for i, per_turn in enumerate(ours[name]):
            sampled = got[i][mask[i] == 1]
            assert sampled.tolist() == pytest.approx([per_turn[0]] * len(sampled), abs=1e-5), name
    for name in ("reinforce_plus_plus", "remax"):
        if name == "reinforce_plus_plus":
            fn = core_algos.get_adv_estimator_fn(name)
            advantages, _ = fn(token_level_rewards=rewards, response_mask=mask, config=_Config(gamma=1.0), index=index)
            assert torch.isfinite(advantages).all()
    values = torch.randn_like(rewards)
    advantages, _ = core_algos.compute_gae_advantage_return(rewards, values, mask, 1.0, 0.95)
    assert torch.isfinite(advantages).all()


class _Config(dict[str, Any]):
    __getattr__ = dict.__getitem__


def test_turn_level_gae_equals_the_reference() -> None:
    batch = [e for e in episodes(32, seed=4, several_sequences=False) if all(t.response_ids for t in e.turns)]
    dicts = [rows(e, SETTINGS)[0].as_dict() for e in batch]
    mask, rewards = padded(dicts, "response_mask"), padded(dicts, "rm_scores")
    values = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    advantages, targets = turn_level_gae(rewards, values, mask, gamma=0.9, lam=0.8)
    spans = turn_spans(mask)
    pairs = [
        adv.gae(e.rewards, [float(values[i, a]) for a, _ in spans[i]], gamma=0.9, lam=0.8) for i, e in enumerate(batch)
    ]
    flat = np.concatenate([a for a, _ in pairs])
    expected = [(a - flat.mean()) / (flat.std() + adv.EPS) for a, _ in pairs]
    assert torch.allclose(advantages, spread(expected, spans, rewards), atol=1e-4)
    assert torch.allclose(targets, spread([t for _, t in pairs], spans, rewards), atol=1e-4)


def test_masking_is_by_option() -> None:
    for episode in EPISODES:
        for failed in ("keep", "mask"):
            for truncated in ("keep", "mask"):
                settings = GemSettings(env_id="x", failed_loss=failed, truncated_loss=truncated)  # type: ignore[arg-type]
                want = (episode.failed and failed == "mask") or (
                    not episode.failed and not episode.terminated and truncated == "mask"
                )
                assert masked(episode, settings) == want
                total = sum(sum(r.response_mask) for r in rows(episode, settings))
                assert total == (0 if want else episode.num_sampled_tokens)


def test_rows_whose_tokens_are_masked_have_no_turns_in_the_statistics() -> None:
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]])
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 50.0, 0.0, 0.0]])
    advantages, _ = turn_level("rebn", rewards, mask, None, None)
    assert advantages[1].abs().sum() == 0
    assert advantages[0].tolist() == pytest.approx([1.0, 1.0, 0.0, -1.0], abs=1e-6)


def test_an_episode_without_a_token_gives_one_masked_filler() -> None:
    from gem_core import Episode, StopReason

    episode = Episode("x", stop_reason=StopReason.ENV_ERROR, truncated=True, error="reset: OSError")
    (row,) = rows(episode, SETTINGS, filler_token=7)
    d = row.as_dict()
    assert d["prompts"].tolist() == d["responses"].tolist() == [7]
    assert d["response_mask"].tolist() == [0]

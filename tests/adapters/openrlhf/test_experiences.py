"""Recorded episodes through OpenRLHF's own samples generator and experience maker, field by field."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import contract
import numpy as np
import pytest
import torch
from gem_openrlhf.advantages import NAMES, Batch
from gem_openrlhf.experience_maker import GemExperienceMaker
from gem_openrlhf.output import masked, response
from gem_openrlhf.samples import MORE, RECORD, GemSamplesGenerator, metrics, rows
from gem_openrlhf.settings import GemSettings

from gem_core import Episode
from gem_core.advantages import GROUP_ESTIMATORS, estimate_episodes, gae
from gem_core.episode import summarize

SETTINGS = GemSettings(env_id="test:Script-v0")
EPISODES = contract.episodes()
MAX_LEN = 4096


def options(**changes: Any) -> SimpleNamespace:
    """The part of OpenRLHF's arguments that is read here."""
    args = {
        "algo": {
            "advantage": {"estimator": "gem_rebn", "gamma": 0.9, "lambd": 0.95, "no_std_norm": False},
            "kl": {"use_loss": False},
        },
        "reward": {"clip_range": (-10, 10), "overlong_buffer_len": None, "stop_properly_penalty_coef": None},
        "rollout": {"micro_batch_size": 3, "n_samples_per_prompt": 4, "max_new_tokens": None},
        "train": {"batch_size": 8, "micro_batch_size": 2, "dynamic_batch_enable": False},
        "actor": {"num_nodes": 1, "num_gpus_per_node": 2},
        "ds": {"ring_attn_size": 1, "tensor_parallel_size": 1},
        "data": {"max_len": MAX_LEN},
    }
    for path, value in changes.items():
        *sections, name = path.split("__")
        at: Any = args
        for section in sections:
            at = at[section]
        at[name] = value
    return json.loads(json.dumps(args), object_hook=lambda d: SimpleNamespace(**d))


def generator() -> GemSamplesGenerator:
    return GemSamplesGenerator(SimpleNamespace(args=options()), None, None, None, [])


def samples(episodes: list[Episode], **settings: Any) -> list[Any]:
    made = GemSettings(env_id="test:Script-v0", **settings)
    dicts = [response(e, made, prompt=e.episode_id, label="l", filler_token=2) for e in episodes]
    return [generator()._process_response_into_experience(d, max_len=MAX_LEN) for d in dicts]


def maker(args: SimpleNamespace, kl_coef: float = 0.0) -> GemExperienceMaker:
    tokenizer = SimpleNamespace(pad_token_id=0)
    return GemExperienceMaker(
        None, None, None, None, SimpleNamespace(value=kl_coef), SimpleNamespace(args=args), tokenizer
    )


def made(episodes: list[Episode], kl: Any = None, **changes: Any) -> tuple[GemExperienceMaker, list[Any]]:
    """Experiences with advantages, without the models' forward passes in between."""
    args = options(**changes)
    m = maker(args, kl_coef=0.0 if kl is None else 0.5)
    ranks = 2
    laid_out = rows(samples(episodes), np.lcm(args.train.batch_size, args.rollout.micro_batch_size * ranks))
    experiences = m.split_rollout_samples(laid_out)
    for e in experiences:
        e.action_log_probs = torch.zeros(e.action_mask.shape)
        e.kl = torch.zeros(e.action_mask.shape) if kl is None else kl(e)
    return m, m.compute_advantages_and_returns(experiences)


@pytest.mark.l2
def test_experiences_hold_the_episodes_tokens_masks_ranges_and_log_probabilities() -> None:
    checked = 0
    for episode, sample in zip(EPISODES, samples(EPISODES), strict=True):
        (more,) = sample.info[MORE]
        sequences = [s for s in episode.to_sequences() if s.response_ids]
        assert len(sequences) == 1 + len(more) or (not sequences and not more)
        keep = not masked(episode, SETTINGS)
        for s, row in zip(sequences, [sample, *more], strict=False):
            n = len(s.prompt_ids)
            assert row.sequences.tolist() == [s.prompt_ids + s.response_ids]
            assert row.attention_mask.tolist() == [[1] * len(s)]
            mask = [0] * n + [m if keep else 0 for m in s.response_mask]
            assert row.action_mask.tolist() == [mask[1:]]
            assert row.rollout_log_probs[0].tolist() == pytest.approx(([0.0] * n + s.logprobs)[1:], abs=1e-6)
            (record,) = row.info[RECORD]
            assert record.episode.group_id == episode.group_id
            assert list(record.episode.rewards) == episode.rewards
            for turn, first, end in record.turns:
                assert row.sequences[0, first:end].tolist() == list(episode.turns[turn].response_ids)
            if keep:
                assert [t for t, _, _ in record.turns] == s.turns
            else:
                assert record.turns == ()
            assert float(row.rewards) == pytest.approx(episode.total_reward, abs=1e-6)
            assert row.prompts == [episode.episode_id]
            checked += 1
        assert float(sample.info["gem/success"]) == float(bool(episode.success))
        assert float(sample.info["gem/turns"]) == len(episode.turns)
    assert checked > 60


@pytest.mark.l2
def test_an_episode_without_a_token_is_a_sample_without_a_loss() -> None:
    failed = Episode(env_id="test:Script-v0", episode_id="f", group_id="g")
    from gem_core.episode import StopReason

    failed.stop_reason, failed.error = StopReason.ENV_ERROR, "reset: broken"
    (sample,) = samples([failed])
    assert sample.sequences.tolist() == [[2, 2]]
    assert sample.action_mask.tolist() == [[0]]
    assert int(sample.response_length) == 0


@pytest.mark.l2
@pytest.mark.parametrize("name", [n for n in NAMES if n != "gae"])
def test_every_estimator_is_gem_cores_on_the_whole_batch(name: str) -> None:
    gamma = 0.9
    _, experiences = made(EPISODES, algo__advantage__estimator=f"gem_{name}")
    expected = estimate_episodes(name, EPISODES, gamma=gamma)
    returns = estimate_episodes("reinforce", EPISODES, gamma=gamma)
    compare(experiences, expected, returns)


def compare(experiences: list[Any], advantages: list[Any], returns: list[Any]) -> None:
    """The rows are the episodes' sequences in order, then fillers without a loss."""
    got_rows = [
        (mask, a, r) for e in experiences for mask, a, r in zip(e.action_mask, e.advantages, e.returns, strict=True)
    ]
    at = 0
    for i, episode in enumerate(EPISODES):
        sequences = [s for s in episode.to_sequences() if s.response_ids]
        for s in sequences:
            mask, got, got_returns = got_rows[at]
            hidden = masked(episode, SETTINGS)
            for values, per_turn in ((got, advantages[i]), (got_returns, returns[i])):
                spread = [0.0] * len(s.prompt_ids) + s.spread(per_turn)
                wanted = [0.0 if hidden else v for v in spread[1:]]
                assert values[: len(wanted)].tolist() == pytest.approx(wanted, abs=1e-5)
                assert not values[len(wanted) :].any()
            assert not got[~mask.bool()].any()
            at += 1
        at += not sequences
    assert not any(mask.any() for mask, _, _ in got_rows[at:])


@pytest.mark.l2
def test_rebn_equals_brute_force() -> None:
    gamma = 0.9
    _, experiences = made(EPISODES)
    values: list[float] = []
    for e in EPISODES:
        if e.failed:
            continue
        for t in range(len(e.turns)):
            values.append(sum(gamma**k * e.turns[t + k].reward for k in range(len(e.turns) - t)))
    mean = sum(values) / len(values)
    std = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    brute = [
        [
            0.0 if e.failed else (sum(gamma**k * r for k, r in enumerate(e.rewards[t:])) - mean) / std
            for t in range(len(e.turns))
        ]
        for e in EPISODES
    ]
    compare(experiences, brute, estimate_episodes("reinforce", EPISODES, gamma=gamma))


@pytest.mark.l2
def test_rows_fill_whole_batches_and_ranks_only_where_an_episode_has_several() -> None:
    args = options()
    multiple = np.lcm(args.train.batch_size, args.rollout.micro_batch_size * 2)
    laid_out = rows(samples(EPISODES), multiple)
    assert len(laid_out) % multiple == 0
    real = sum(max(1, len([s for s in e.to_sequences() if s.response_ids])) for e in EPISODES)
    assert len(laid_out) - real < multiple
    single = contract.episodes(several_sequences=False)[:7]
    assert len(rows(samples(single), multiple)) == 7


@pytest.mark.l2
def test_openrlhfs_estimators_work_on_single_sequences_and_refuse_several() -> None:
    single = contract.episodes(48, several_sequences=False)
    args = options(algo__advantage__estimator="reinforce_baseline", algo__advantage__gamma=1.0)
    m = maker(args)
    experiences = m.split_rollout_samples(rows(samples(single), 1))
    for e in experiences:
        e.kl = torch.zeros(e.action_mask.shape)
    done = m.compute_advantages_and_returns(experiences)
    assert all(torch.isfinite(e.advantages).all() for e in done)
    assert not any(RECORD in e.info for e in done)
    with pytest.raises(ValueError, match="takes one training sequence an episode"):
        m.make_experience_batch(samples(EPISODES))


@pytest.mark.l2
def test_kl_and_length_penalties_and_clipping_reach_their_turns() -> None:
    single = [e for e in contract.episodes(several_sequences=False) if not e.failed][:12]
    _, plain = made(single, algo__advantage__estimator="gem_reinforce", algo__advantage__gamma=1.0)
    _, with_kl = made(
        single,
        kl=lambda e: 0.1 * e.action_mask.float(),
        algo__advantage__estimator="gem_reinforce",
        algo__advantage__gamma=1.0,
    )
    before = torch.cat([e.info["return"] for e in plain])
    after = torch.cat([e.info["return"] for e in with_kl])
    tokens = torch.tensor([float(e.num_sampled_tokens) for e in single])
    assert torch.allclose(before - after, 0.5 * 0.1 * tokens, atol=1e-4)

    _, shaped = made(single, algo__advantage__estimator="gem_reinforce", reward__stop_properly_penalty_coef=-5.0)
    cut = [e.turns[-1].finish_reason == "length" for e in single]
    returns = torch.cat([e.info["return"] for e in shaped])
    assert any(cut)
    for was_cut, value, episode in zip(cut, returns.tolist(), single, strict=True):
        assert value == pytest.approx(-5.0 if was_cut else episode.total_reward, abs=1e-4)

    _, clipped = made(single, algo__advantage__estimator="gem_reinforce", reward__clip_range=(-0.1, 0.1))
    expected = [sum(min(max(r, -0.1), 0.1) for r in e.rewards) for e in single]
    assert torch.cat([e.info["return"] for e in clipped]).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.l2
def test_turn_level_gae_reads_the_critic_before_each_turns_first_token() -> None:
    single = [e for e in contract.episodes(several_sequences=False) if not e.failed][:10]
    rng = random.Random(0)
    made_of = samples(single)
    records = [s.info[RECORD][0] for s in made_of]
    per_turn = [[0.0] * len(e.turns) for e in single]
    values = [torch.full((s.action_mask.size(1),), 999.0) for s in made_of]
    for value, record, known in zip(values, records, per_turn, strict=True):
        for turn, first, _ in record.turns:
            known[turn] = rng.choice([-0.5, 0.25, 1.0])
            value[first - 1] = known[turn]
    advantages, targets = Batch(records).estimate_gae(values, gamma=0.9, lam=0.8)
    pairs = [gae(e.rewards, v, gamma=0.9, lam=0.8) for e, v in zip(single, per_turn, strict=True)]
    raw = np.concatenate([a for a, _ in pairs])
    for got, target, (a, wanted) in zip(advantages, targets, pairs, strict=True):
        assert got.tolist() == pytest.approx(((a - raw.mean()) / raw.std()).tolist(), abs=1e-6)
        assert target.tolist() == pytest.approx(wanted.tolist(), abs=1e-9)


@pytest.mark.l2
def test_metrics_are_means_over_episodes() -> None:
    m, _ = made(EPISODES)
    expected = summarize(EPISODES)
    for name in ("success", "return", "turns", "failed", "sampled_tokens"):
        assert m.metrics[f"gem/{name}"] == pytest.approx(expected[name]), name
    for name in expected:
        if name.startswith("stop/"):
            assert m.metrics[f"gem/{name}"] == pytest.approx(expected[name])
    assert m.metrics["gem/rollout_log_prob_diff_max"] > 0.0
    assert metrics([]) == {}


@pytest.mark.l1
def test_group_estimators_are_told_from_the_others() -> None:
    from gem_openrlhf.advantages import own_name, stand_in

    assert own_name("gem_rebn") == "rebn"
    assert own_name("reinforce") is None
    assert own_name("gem_nothing") is None
    assert {n for n in NAMES if stand_in(n) == "group_norm"} == GROUP_ESTIMATORS
    assert stand_in("gae") == "gae"
    assert stand_in("rebn") == "reinforce"

"""Episodes as Oat's samples, field by field."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from contract import episodes
from support import QWEN_LIKE, build_tokenizer

from gem_core import advantages as adv
from gem_core.episode import Episode

TOKENIZER = build_tokenizer(QWEN_LIKE)
GAMMA = 0.9


def samples(episode: Episode, values: Any = None, **options: Any) -> list[Any]:
    from gem_oat.transitions import transitions

    return transitions(episode, episode.returns(GAMMA) if values is None else values, TOKENIZER, **options)


@pytest.mark.l1
def test_contract_episodes_keep_tokens_masks_logprobs_rewards_and_groups() -> None:
    for episode in episodes():
        got = samples(episode)
        # Laid end to end, the samples' sampled tokens are those of the episode's sequences.
        sequences = episode.to_sequences()
        sampled = [
            (t, i, lp)
            for s in sequences
            for t, i, lp in zip(s.turn_index, s.response_ids, s.logprobs, strict=True)
            if t >= 0
        ]
        assert [
            (s.turn, i, lp) for s in got for i, lp in zip(s.response_ids, s.response_logprobs, strict=True)
        ] == sampled
        # Each prompt is all that the policy had seen: the sequence up to the turn's first sampled token.
        for sample in got:
            own = next(s for s in sequences if sample.turn in s.turn_index)
            first = len(own.prompt_ids) + own.turn_index.index(sample.turn)
            assert sample.prompt_ids == own.input_ids[:first]
        assert {(s.episode_id, s.group_id) for s in got} <= {(episode.episode_id, episode.group_id)}
        if got:
            assert sum(s.turn_reward for s in got) == pytest.approx(episode.total_reward)


@pytest.mark.l1
def test_a_turns_value_is_on_its_last_token_and_nowhere_else() -> None:
    for episode in episodes(seed=3):
        returns = episode.returns(GAMMA)
        for sample in samples(episode):
            assert len(sample.rewards) == len(sample.response_ids)
            assert sample.rewards[-1] == returns[sample.turn]
            assert not any(sample.rewards[:-1])


@pytest.mark.l1
def test_groups_are_compared_whole() -> None:
    from gem_oat.transitions import turn_values

    batch = [e for e in episodes(40, seed=4) if not e.failed]
    rewards, groups = [e.rewards for e in batch], [e.group_id for e in batch]
    for name in adv.ESTIMATORS:
        got = turn_values(name, batch, GAMMA)
        # rebn is the learner's: the actor hands over returns.
        want = adv.estimate("reinforce" if name == "rebn" else name, rewards, groups, gamma=GAMMA)
        for g, w in zip(got, want, strict=True):
            assert g == pytest.approx(w, abs=1e-12)


@pytest.mark.l1
def test_bad_input_is_named() -> None:
    from gem_oat.transitions import pick, turn_values

    episode = episodes(1)[0]
    with pytest.raises(ValueError, match="advantage='nope'"):
        turn_values("nope", [episode], GAMMA)
    with pytest.raises(ValueError, match="fewer than the 99"):
        pick(samples(episode), 99, random.Random(0), last_turns=False)


@pytest.mark.l2
def test_every_field_of_200_random_episodes_in_oats_own_types() -> None:
    from gem_oat.transitions import GemTransition
    from oat.types import TransitionData

    cut = several = 0
    for episode in episodes(200, seed=1):
        got = {s.turn: s for s in samples(episode, mask_cut=True)}
        assert sorted(got) == [i for i, t in enumerate(episode.turns) if t.response_ids]
        seen: list[int] = []
        for i, turn in enumerate(episode.turns):
            seen = [*([] if turn.new_sequence else seen), *turn.context_ids]
            several += i > 0 and turn.new_sequence
            if i in got:
                s = got[i]
                assert isinstance(s, TransitionData)
                assert type(s) is GemTransition
                assert s.prompt_ids == seen
                assert s.prompt == TOKENIZER.decode(seen, skip_special_tokens=False)
                assert s.response_ids == list(turn.response_ids)
                assert s.response == TOKENIZER.decode(list(turn.response_ids), skip_special_tokens=True)
                assert s.response_logprobs == list(turn.logprobs)
                assert s.loss_mask is (turn.finish_reason != "length")
                cut += not s.loss_mask
                later = [j for j in got if j > i]
                assert s.next_value == (episode.returns(GAMMA)[min(later)] if later else 0.0)
                assert s.info == {
                    "actor/turn_reward": turn.reward,
                    "actor/turn_value": episode.returns(GAMMA)[i],
                    "actor/turn_cut": float(turn.finish_reason == "length"),
                }
            seen = [*seen, *turn.response_ids]
    assert cut > 50
    assert several > 50


@pytest.mark.l2
def test_oats_dataset_pads_the_samples_and_keeps_their_places() -> None:
    from types import SimpleNamespace

    from gem_oat.transitions import GemTransitionDataset

    flat = [s for e in episodes(30, seed=5) for s in samples(e)]
    strategy = SimpleNamespace(is_rank_0=lambda: False, args=SimpleNamespace(dry_run=False))
    data = GemTransitionDataset(flat, TOKENIZER, strategy)
    batch = data.collate_fn([data[i] for i in range(len(data))])
    for i, s in enumerate(flat):
        n, m = len(s.prompt_ids), len(s.response_ids)
        assert batch["input_ids"][i, : n + m].tolist() == s.prompt_ids + s.response_ids
        assert batch["attention_mask"][i].tolist() == [1.0] * (n + m) + [0.0] * (batch["input_ids"].shape[1] - n - m)
        assert batch["prompt_ids_lens"][i] == n
        assert batch["action_logprobs"][i] == s.response_logprobs
        assert batch["rewards"][i] == s.rewards
        assert batch["loss_masks"][i] == s.loss_mask
        assert tuple(batch["turns"][i]) == (s.episode_id, s.turn, s.turn_reward, s.next_value)
    assert torch.is_tensor(batch["input_ids"])


@pytest.mark.l2
@pytest.mark.parametrize("last_turns", [False, True])
def test_a_batch_has_exactly_the_size_asked_for(last_turns: bool) -> None:
    from gem_oat.transitions import pick

    flat = [s for e in episodes(20, seed=6) for s in samples(e)]
    order = {(s.episode_id, s.turn): i for i, s in enumerate(flat)}
    for size in (1, 7, len(flat) // 2, len(flat) - 1, len(flat)):
        got = pick(flat, size, random.Random(size), last_turns=last_turns)
        assert len(got) == size
        places = [order[s.episode_id, s.turn] for s in got]
        assert places == sorted(set(places))
        if last_turns:  # whatever is kept of an episode has all that followed it
            kept = Counter(s.episode_id for s in got)
            for episode_id, n in kept.items():
                of_it = [s for s in flat if s.episode_id == episode_id]
                assert [s.turn for s in got if s.episode_id == episode_id] == [s.turn for s in of_it[-n:]]


@pytest.mark.l2
def test_rebn_over_ranks_equals_rebn_of_the_global_batch() -> None:
    from gem_oat.advantages import rebn

    rng = np.random.default_rng(0)
    returns = torch.tensor(rng.normal(3.0, 2.0, 96), dtype=torch.float32)
    want = (returns.double() - returns.double().mean()) / (returns.double().std(unbiased=False) + 1e-9)
    ranks = returns.split([16, 16, 24, 40])
    shared: list[torch.Tensor] = []
    for part in ranks:
        rebn(part, lambda x: shared.append(x) or x)  # type: ignore[func-returns-value]
    total = torch.stack(shared).sum(0)
    got = torch.cat([rebn(part, lambda x: total)[0] for part in ranks])
    assert torch.allclose(got.double(), want, atol=1e-6, rtol=0)
    flat, _ = rebn(torch.full((8,), 0.3), lambda x: x)
    assert flat.tolist() == [0.0] * 8

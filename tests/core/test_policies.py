"""Sampling from a model: exact log probabilities, a cache that changes nothing, determinism."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ScriptEnv

import gem_core as gem
from gem_core.chat import ChatRenderer
from gem_core.policies import RandomPolicy, Sampling, ScriptedPolicy, TransformersPolicy, sample
from gem_core.session import EpisodeSession, Limits, Prompt

ENV = "game:GuessTheNumber-v0"


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any]:
    from gem_core.tiny import build_tiny

    torch.set_num_threads(1)  # many threads only wait for each other at this size
    return build_tiny(seed=3, hidden_size=32, num_layers=1)


def chatter(turns: int, first: str = "Begin.") -> ScriptEnv:
    """Talks for some turns, with observations of different lengths."""
    steps = [("x" * (3 * i % 7) + " 12 more", 0.0, False, False, {}) for i in range(turns - 1)]
    return ScriptEnv([*steps, ("end", 1.0, True, False, {})], first=first)


def play(policy: Any, tokenizer: Any, turns: list[int], per_turn: int = 6) -> list[Any]:
    renderer = ChatRenderer(tokenizer)
    limits = Limits(max_tokens_per_turn=per_turn)
    sessions = [
        EpisodeSession(chatter(n, "Begin." * (i % 3 + 1)), renderer, limits=limits, episode_id=f"e{i}")
        for i, n in enumerate(turns)
    ]
    waiting = [(s, s.start()) for s in sessions]
    while waiting:
        answers = policy.generate([p for _, p in waiting])
        waiting = [(s, p) for (s, _), a in zip(waiting, answers, strict=True) if (p := s.submit(a)) is not None]
    return [s.episode for s in sessions]


def full_pass_error(model: Any, episodes: list[Any], temperature: float = 1.0) -> float:
    """Largest difference between the episodes' log probabilities and those of one forward pass over each sequence."""
    worst = 0.0
    for episode in episodes:
        for s in episode.to_sequences():
            with torch.no_grad():
                logits = model(torch.tensor([s.input_ids])).logits[0, len(s.prompt_ids) - 1 : -1] / temperature
            exact = logits.log_softmax(-1).gather(1, torch.tensor(s.response_ids)[:, None])[:, 0]
            mask = torch.tensor(s.response_mask, dtype=torch.bool)
            worst = max(worst, float((exact - torch.tensor(s.logprobs))[mask].abs().max()))
    return worst


@pytest.mark.parametrize("keep_cache", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_a_full_forward_pass(
    tiny: tuple[Any, Any], keep_cache: bool, temperature: float
) -> None:
    model, tokenizer = tiny
    how = Sampling(temperature=temperature)
    policy = TransformersPolicy(model, tokenizer, sampling=how, keep_cache=keep_cache, seed=5)
    episodes = play(policy, tokenizer, [1, 4, 2, 6, 3])
    assert [len(e.turns) for e in episodes] == [1, 4, 2, 6, 3]
    assert full_pass_error(model, episodes, temperature) < 1e-4


def test_the_cache_changes_no_token(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    kept, plain = (
        play(TransformersPolicy(model, tokenizer, keep_cache=keep, seed=1), tokenizer, [5, 2, 7, 7])
        for keep in (True, False)
    )
    assert [[t.response_ids for t in e.turns] for e in kept] == [[t.response_ids for t in e.turns] for e in plain]


def test_only_the_new_observation_is_computed(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    computed: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: computed.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        (episode,) = play(TransformersPolicy(model, tokenizer, seed=2), tokenizer, [6])
    finally:
        hook.remove()
    # Every token once, but for the very last sampled one, which no step needs.
    assert sum(computed) == len(episode.to_sequences()[0]) - 1


LENGTHS = [4, 2, 5]


@pytest.fixture(scope="module")
def together(tiny: tuple[Any, Any]) -> list[Any]:
    return play(TransformersPolicy(*tiny, seed=9), tiny[1], LENGTHS, per_turn=4)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_order_and_mix_of_prompts_gives_the_same_answers(
    tiny: tuple[Any, Any], together: list[Any], data: st.DataObject
) -> None:
    """Rows that leave the batch, come back or arrive late are all answered alike."""
    model, tokenizer = tiny
    policy = TransformersPolicy(model, tokenizer, seed=9)
    renderer, limits = ChatRenderer(tokenizer), Limits(max_tokens_per_turn=4)
    sessions = [
        EpisodeSession(chatter(n, "Begin." * (i % 3 + 1)), renderer, limits=limits, episode_id=f"e{i}")
        for i, n in enumerate(LENGTHS)
    ]
    prompts = {i: s.start() for i, s in enumerate(sessions)}
    while open_ := [i for i, p in prompts.items() if p is not None]:
        chosen = data.draw(st.lists(st.sampled_from(open_), min_size=1, unique=True))
        answers = policy.generate([prompts[i] for i in chosen])
        for i, a in zip(chosen, answers, strict=True):
            prompts[i] = sessions[i].submit(a)
    for session, expected in zip(sessions, together, strict=True):
        assert [t.response_ids for t in session.episode.turns] == [t.response_ids for t in expected.turns]
    assert full_pass_error(model, [s.episode for s in sessions]) < 1e-4


def test_changed_weights_and_changed_contexts_are_noticed(tiny: tuple[Any, Any]) -> None:
    import copy

    model, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    policy = TransformersPolicy(model, tokenizer, sampling=Sampling(greedy=True), max_new_tokens=5)
    base = tokenizer.encode("Begin with 12 and 13")
    first = policy.generate([Prompt(base, [], None, "e", 0)])[0]
    longer = [*base, *first.token_ids, *tokenizer.encode(" more")]
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    rewritten = [*base[1:], *first.token_ids, *tokenizer.encode(" more")]
    for ids in (longer, rewritten):
        fresh = TransformersPolicy(model, tokenizer, sampling=Sampling(greedy=True), max_new_tokens=5)
        expected = fresh.generate([Prompt(ids, [], None, "e", 1)])[0]
        answer = policy.generate([Prompt(ids, [], None, "e", 1)])[0]
        assert answer.token_ids == expected.token_ids
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_limits_and_reasons(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    ids = tokenizer.encode("Begin 12")
    stop_everywhere = TransformersPolicy(model, tokenizer, stop_token_ids=range(model.config.vocab_size))
    (answer,) = stop_everywhere.generate([Prompt(ids, [], 5, "e", 0)])
    assert (len(answer.token_ids), answer.finish_reason) == (1, "stop")
    never = TransformersPolicy(model, tokenizer, stop_token_ids=[10**6], max_new_tokens=4)
    short, long = never.generate([Prompt(ids, [], 2, "a", 0), Prompt(ids, [], 9, "b", 0)])
    assert [len(short.token_ids), len(long.token_ids)] == [2, 4]
    assert short.finish_reason == long.finish_reason == "length"
    with pytest.raises(ValueError, match="no room in the model's 4096"):
        never.generate([Prompt([5] * 4096, [], None, "a", 0)])
    with pytest.raises(ValueError, match="'a': a prompt without token ids"):
        never.generate([Prompt([], [], None, "a", 0)])
    assert never.generate([]) == []


def test_global_random_state_and_training_mode_are_untouched(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    model.train()
    play(TransformersPolicy(model, tokenizer), tokenizer, [2])
    assert model.training
    model.eval()
    assert torch.rand(1) == expected


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 10.0), min_size=2, max_size=8),
    u=st.floats(0, 1, exclude_max=True),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.05, 1.0),
)
def test_a_draw_inverts_the_cumulative_distribution(weights: list[float], u: float, top_k: int, top_p: float) -> None:
    logits = torch.tensor([weights]).log()
    token, logp = sample(logits, Sampling(top_k=top_k, top_p=top_p), [u])
    p = [w / sum(weights) for w in weights]
    ranked = sorted(range(len(p)), key=lambda i: -p[i])
    if top_k:
        least = sorted(p, reverse=True)[min(top_k, len(p)) - 1]
        ranked = [i for i in ranked if p[i] >= least]
    share = sum(p[i] for i in ranked)
    if top_p < 1:
        before = 0.0
        kept = []
        for i in ranked:
            if before / share < top_p - 1e-6:
                kept.append(i)
            before += p[i]
        if any(abs(sum(p[j] for j in ranked[:n]) / share - top_p) < 1e-5 for n in range(1, len(ranked))):
            return  # a tie that rounding may break either way
        ranked = kept
    share = sum(p[i] for i in ranked)
    assert int(token) in ranked
    assert math.isclose(float(logp), math.log(p[int(token)] / share), abs_tol=1e-4)
    cumulative = 0.0
    for i in sorted(ranked):
        cumulative += p[i] / share
        if u < cumulative - 1e-6:
            assert int(token) <= i
            break
        if u > cumulative + 1e-6:
            assert int(token) > i


def test_never_a_token_of_probability_zero() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    for u in (0.0, 0.25, 0.5, 0.75, math.nextafter(1.0, 0.0)):
        assert int(sample(logits, Sampling(), [u])[0]) in (1, 3)


@pytest.mark.parametrize(
    "bad", [{"temperature": 0.0}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}]
)
def test_nonsense_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)  # type: ignore[arg-type]


def run_text(policy: Any, seed: int, **kwargs: Any) -> Any:
    env = gem.make(ENV, **kwargs)
    session = EpisodeSession(env, seed=seed, episode_id=str(seed))
    prompt = session.start()
    while prompt is not None:
        prompt = session.submit(policy.generate([prompt])[0])
    return session.episode


def test_the_scripted_expert_bisects() -> None:
    episodes = [run_text(ScriptedPolicy(ENV), seed) for seed in range(40)]
    assert all(e.success for e in episodes)
    assert max(len(e.turns) for e in episodes) <= 5
    gem.register("test:NoExpert-v0", ScriptEnv)
    try:
        with pytest.raises(ValueError, match=r"there are experts for .*GuessTheNumber"):
            ScriptedPolicy("test:NoExpert-v0")
    finally:
        gem.unregister("test:NoExpert-v0")


def test_the_random_policy_plays_well_formed_actions(tiny: tuple[Any, Any]) -> None:
    env = gem.make(ENV)
    session = EpisodeSession(env, ChatRenderer(tiny[1]), seed=1)
    policy = RandomPolicy(lambda episode_id: env, tiny[1])
    prompt = session.start()
    while prompt is not None:
        prompt = session.submit(policy.generate([prompt])[0])
    assert all(t.reward >= 0.0 for t in session.episode.turns)  # well-formed; a repeated guess costs its turn only
    assert all(t.response_ids[-1] == tiny[1].eos_token_id for t in session.episode.turns)


def test_a_text_answer_is_cut_at_the_limit(tiny: tuple[Any, Any]) -> None:
    session = EpisodeSession(gem.make(ENV), ChatRenderer(tiny[1]), seed=1, limits=Limits(max_tokens_per_turn=2))
    session.submit(ScriptedPolicy(ENV, tiny[1]).generate([session.start()])[0])  # type: ignore[list-item]
    assert session.episode.turns[0].finish_reason == "length"
    assert session.episode.turns[0].action == "\\boxed{10"

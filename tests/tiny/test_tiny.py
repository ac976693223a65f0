"""The tiny model: any text survives, numbers are one token, and the same seed gives the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core as gem
from gem_core.chat import ChatRenderer
from gem_core.policies import Sampling, TransformersPolicy
from gem_core.session import EpisodeSession, Limits
from gem_core.tiny import (
    build_tiny,
    build_tokenizer,
    corpus,
    demonstrations,
    load_tiny,
    number_ids,
    save_tiny,
    warm_start,
)

ENV = "game:GuessTheNumber-v0"


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any]:
    torch.set_num_threads(1)  # many threads only wait for each other at this size
    return build_tiny(seed=0)


@settings(max_examples=150, deadline=None)
@given(st.text())
def test_any_text_survives_encode_and_decode(tiny: tuple[Any, Any], text: str) -> None:
    tokenizer = tiny[1]
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("frame", ["{}", "x{}y", "than {}.", "\\boxed{{{}}}", " {} ", "-{}"])
def test_numbers_are_the_same_single_token_everywhere(tiny: tuple[Any, Any], frame: str) -> None:
    tokenizer = tiny[1]
    for n, token in enumerate(number_ids(tokenizer)):
        assert token in tokenizer.encode(frame.format(n))
    assert len(set(number_ids(tokenizer))) == 100


def test_a_turn_of_the_game_costs_a_dozen_tokens(tiny: tuple[Any, Any]) -> None:
    env, tokenizer = gem.make(ENV), tiny[1]
    session = EpisodeSession(env, ChatRenderer(tokenizer), seed=3)
    first = session.start()
    assert first is not None
    assert len(first.token_ids) < 20
    action = [*tokenizer.encode("\\boxed{1}"), tokenizer.eos_token_id]
    assert len(action) == 4
    from gem_core.session import Generation

    second = session.submit(Generation(action))
    assert second is not None
    assert len(second.token_ids) - len(first.token_ids) - len(action) < 13


def test_texts_that_were_not_in_the_corpus_get_merges_too() -> None:
    plain = build_tokenizer()
    read = build_tokenizer([f"a common saying number {i} of {i * i} and another" for i in range(50)])
    text = "a common saying number 77 of 12 and"
    assert len(read.encode(text)) < len(plain.encode(text)) / 2
    assert read.decode(read.encode("unseen \u4e16\u754c")) == "unseen \u4e16\u754c"


def test_the_corpus_is_deterministic_and_holds_what_the_game_says() -> None:
    texts = corpus([ENV], episodes=4)
    assert texts == corpus([ENV], episodes=4)
    assert any("is higher than" in t for t in texts)
    assert "" in texts


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_state_alone(tiny: tuple[Any, Any]) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    again, tokenizer = build_tiny(seed=0)
    other, _ = build_tiny(seed=1)
    assert torch.rand(1) == expected
    mine, same, different = (dict(m.state_dict()) for m in (tiny[0], again, other))
    assert all(torch.equal(mine[k], same[k]) for k in mine)
    assert not all(torch.equal(mine[k], different[k]) for k in mine)
    assert tokenizer.backend_tokenizer.to_str() == tiny[1].backend_tokenizer.to_str()


def test_near_numbers_have_near_embeddings(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    codes = model.get_input_embeddings().weight[number_ids(tokenizer)].detach()
    distance = torch.cdist(codes[1:21], codes[1:21])
    for i in range(20):
        by_distance = distance[i].argsort()[1:4].tolist()
        assert all(abs(j - i) <= 4 for j in by_distance)
    plain, _ = build_tiny(seed=0, ordered_numbers=False)
    assert not torch.equal(plain.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_it_fits_engines_that_are_particular(tiny: tuple[Any, Any]) -> None:
    config = tiny[0].config
    assert config.head_dim >= 32
    assert config.vocab_size % 64 == 0
    assert config.vocab_size >= len(tiny[1])
    assert next(tiny[0].parameters()).dtype == torch.float32


def test_a_saved_model_loads_as_any_other(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = tiny
    save_tiny(model, tokenizer, tmp_path)
    again, loaded = load_tiny(tmp_path)
    text = "The number is higher than 12.\nGuess \u4e16"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    messages = [{"role": "user", "content": text}]
    assert loaded.apply_chat_template(messages, tokenize=False) == tokenizer.apply_chat_template(
        messages, tokenize=False
    )
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_demonstrations_are_the_same_for_the_same_seed_and_mostly_sensible(tiny: tuple[Any, Any]) -> None:
    source, again = (demonstrations(tiny[1], gem.make(ENV, max_turns=8), seed=2) for _ in range(2))
    episodes = [next(source) for _ in range(60)]
    for e in episodes:
        other = next(again)
        assert (e.seed, [t.response_ids for t in e.turns]) == (other.seed, [t.response_ids for t in other.turns])
    sensible = sum(bool(e.success) for e in episodes) / len(episodes)
    assert 0.55 < sensible < 0.98  # all random: 0.34, all sensible: 1.0


def test_a_warm_start_teaches_the_form_and_is_deterministic(tiny: tuple[Any, Any]) -> None:
    def run() -> tuple[Any, Any, list[float]]:
        model, tokenizer = build_tiny(seed=4, hidden_size=32, num_layers=1)
        return (
            model,
            tokenizer,
            warm_start(model, tokenizer, ENV, steps=40, episodes_per_step=8, warmup_steps=5, seed=4),
        )

    model, tokenizer, losses = run()
    assert losses[-1] < losses[0] / 2
    assert losses == run()[2]
    env = gem.make(ENV)
    policy = TransformersPolicy(model, tokenizer, sampling=Sampling(greedy=True))
    session = EpisodeSession(env, ChatRenderer(tokenizer), seed=1, limits=Limits(max_tokens_per_turn=6))
    prompt = session.start()
    assert prompt is not None
    session.submit(policy.generate([prompt])[0])
    assert session.episode.turns[0].info["action_is_valid"]


@pytest.mark.timeout(300)
def test_the_command_writes_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gem_core.tiny", str(tmp_path / "m"), "--hidden_size", "32", "--num_layers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "parameters" in done.stdout
    assert (tmp_path / "m" / "model.safetensors").exists()
    assert (tmp_path / "m" / "tokenizer.json").exists()

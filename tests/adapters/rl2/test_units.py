"""The adapter's parts that need no rollout: versions, settings, rows, advantages, text."""

from __future__ import annotations

import importlib.metadata
import json
import types
from pathlib import Path
from typing import Any

import gem_rl2
import pytest
import torch
from contract import episodes
from gem_rl2 import _compat, dataset
from gem_rl2.advantages import turn_advantages, turn_spans
from gem_rl2.rows import state_dicts
from gem_rl2.settings import GemSettings, Task
from gem_rl2.text import TextTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from support import QWEN_LIKE, build_tokenizer

from gem_core import advantages as adv

pytestmark = pytest.mark.l1
GUESS = "game:GuessTheNumber-v0"


def test_other_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gem_rl2.SUPPORTED  # noqa: B018  (the version that is installed is served)
    _compat.check_version()
    monkeypatch.setattr(_compat, "version", lambda name: "0.0.1")
    with pytest.raises(ImportError, match=r"rl-square 0\.0\.1.*0\.0\.2"):
        _compat.check_version()

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_compat, "version", missing)
    monkeypatch.setattr(_compat.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"gem-adapters\[rl2\]"):
        _compat.check_version()


def test_an_rl2_with_another_contract_is_refused_by_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import RL2

    module: Any = types.ModuleType("RL2.datasets")
    module.SampleGroup = module.RLDataset = module.pack_tensor_dicts = object
    module.Sample = type("Sample", (), {"__dataclass_fields__": {"sample": None}})
    monkeypatch.setitem(sys.modules, "RL2.datasets", module)
    monkeypatch.setattr(RL2, "datasets", module, raising=False)
    with pytest.raises(ImportError, match="Sample has no state_text"):
        _compat.contract()
    del module.Sample
    with pytest.raises(ImportError, match=r"RL2\.datasets has no initialize_state_dict"):
        _compat.contract()


def test_settings_come_from_the_environment_and_name_their_mistakes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gem_rl2.configure(None)
    monkeypatch.setenv("GEM_RL2_SETTINGS", '{"max_turns": 4}')
    assert gem_rl2.settings.current().max_turns == 4
    file = tmp_path / "gem.json"
    file.write_text('{"wrappers": "request_once"}', encoding="utf-8")
    gem_rl2.configure(None)
    monkeypatch.setenv("GEM_RL2_SETTINGS", str(file))
    assert gem_rl2.settings.current().wrappers == "request_once"
    gem_rl2.configure(None)
    monkeypatch.setenv("GEM_RL2_SETTINGS", "nowhere.json")
    with pytest.raises(ValueError, match="GEM_RL2_SETTINGS"):
        gem_rl2.settings.current()
    with pytest.raises(ValueError, match="max_turn'"):
        GemSettings.from_mapping({"max_turn": 3})
    with pytest.raises(ValueError, match=r"gem\.context"):
        GemSettings(context="append_all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"gem\.env_timeout_s"):
        GemSettings(env_timeout_s=0.0)


def test_rows_say_what_is_played(tmp_path: Path) -> None:
    shares = {GUESS: 3.0, "game:Hangman-v0-easy": 1.0}
    path = tmp_path / "train.jsonl"
    envs = [f"--env={k}={v}" for k, v in shares.items()]
    dataset.main([str(path), *envs, "--rows=400", "--seed=7", f'--kwargs={GUESS}={{"max_turns": 2}}'])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    tasks = [Task.from_row(row) for row in rows]
    assert [t.seed for t in tasks] == list(range(7, 407))
    assert len({t.group for t in tasks}) == 400
    assert 250 < sum(t.env_id == GUESS for t in tasks) < 350
    assert {json.dumps(t.env_kwargs) for t in tasks if t.env_id == GUESS} == {'{"max_turns": 2}'}
    assert all(set(row) == {"extra_info"} for row in rows)  # a prompt column would keep 0.0.2 from asking for one
    held_out = {Task.from_row(r).seed for r in dataset.rows(shares, 400, seed=7, held_out=True)}
    assert not held_out & {t.seed for t in tasks}
    with pytest.raises(ValueError, match="NoSuch"):
        dataset.rows("game:NoSuch-v0", 1)
    with pytest.raises(SystemExit):
        dataset.main([str(path), "--env", f"{GUESS}=0"])


def packed(batch: list[Any], keep: GemSettings) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The batch as RL2 packs it: states without their last token, everything else without its first."""
    all_dicts = [state_dicts(e, keep, 0) for e in batch]
    flat = [d for dicts in all_dicts for d in dicts]
    tensors = {
        name: torch.nn.utils.rnn.pad_sequence([torch.tensor(d[name][1:]) for d in flat], batch_first=True)
        for name in ("action_mask", "rewards")
    }
    borders = [0]
    for dicts in all_dicts:
        borders.append(borders[-1] + len(dicts))
    return tensors, borders


@pytest.mark.parametrize("name", sorted(adv.ESTIMATORS))
def test_turn_advantages_equal_the_reference(name: str) -> None:
    batch = [e for e in episodes(96, seed=3) if all(t.response_ids for t in e.turns)]
    batch = batch[: len(batch) // 4 * 4]
    for i, episode in enumerate(batch):
        episode.group_id = f"g{i // 4}"
    tensors, borders = packed(batch, GemSettings())
    got = turn_advantages(name, tensors["rewards"], tensors["action_mask"], borders, gamma=0.9, responses_per_prompt=4)
    expected = adv.estimate_episodes(name, batch, gamma=0.9)
    assert got.shape == tensors["action_mask"].shape
    assert got[tensors["action_mask"] == 0].abs().sum() == 0
    several = 0
    for episode, per_turn, a, b in zip(batch, expected, borders, borders[1:], strict=False):
        several += b - a > 1
        if episode.failed:
            assert got[a:b].abs().sum() == 0
            continue
        values = [
            float(got[a + row, len(s.prompt_ids) - 1 + s.turn_index.index(turn)])
            for row, s in enumerate(episode.to_sequences())
            for turn in s.turns
        ]
        assert values == pytest.approx(per_turn.tolist(), abs=1e-5)
    assert several > 10


def test_groups_must_be_whole() -> None:
    mask = torch.ones(3, 2)
    with pytest.raises(ValueError, match="groups of 2"):
        turn_advantages("rebn", mask, mask, [0, 1, 2, 3], gamma=1.0, responses_per_prompt=2)
    assert turn_spans(torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]]), [0, 2]) == [[(0, 0, 1), (0, 2, 4)]]


@given(
    st.lists(st.one_of(st.text(max_size=12), st.sampled_from(["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|"])))
)
@settings(max_examples=200, deadline=None)
def test_text_survives_exactly(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert TEXT.text(TEXT.encode(text)) == text
    assert "<|im_end|>" not in TEXT.decode(TEXT.encode(text.replace("<|", "")), skip_special_tokens=True)


TEXT = TextTokenizer(build_tokenizer(QWEN_LIKE))

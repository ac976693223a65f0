"""The example's presets are the paper's settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "train_oat_rebn.py"

pytestmark = [pytest.mark.l1]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    spec = importlib.util.spec_from_file_location("train_oat_rebn", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_preset_has_the_papers_settings(example: Any) -> None:
    assert sorted(example.PRESETS) == ["code", "game", "math", "math_python", "qa", "qa_search", "reasoning"]
    for name in example.PRESETS:
        args = example.parse_args([name])
        assert (args.rollout_batch_size, args.train_batch_size, args.num_ppo_epochs) == (128, 128, 2)
        assert (args.learning_rate, args.lr_scheduler, args.beta, args.temperature) == (1e-6, "constant", 0.0, 1.0)
        assert (args.cliprange, args.tis_c, args.advantage) == (0.2, 2.0, "rebn")
        assert (args.adam_beta_1, args.adam_beta_2) == (0.9, 0.95)
        assert args.gamma == (0.9 if name == "game" else 1.0)
        small = name in ("game", "reasoning")
        assert args.pretrain == f"Qwen/Qwen3-{'1.7B' if small else '4B'}-Base"
        qa = name.startswith("qa")
        assert (args.max_model_len, args.generate_max_length) == ((5120, 500) if qa else (12800, 4096))
    assert "python_tool" in example.parse_args(["math_python"]).wrappers
    assert "search_tool" in example.parse_args(["qa_search"]).wrappers


def test_arguments_win_over_the_preset_and_an_unknown_preset_is_refused(example: Any) -> None:
    args = example.parse_args(["game", "--advantage", "grpo", "--group_size", "4", "--env_id", "game:Wordle-v0"])
    assert (args.advantage, args.group_size, args.env_id, args.wrappers) == ("grpo", 4, "game:Wordle-v0", "concat")
    with pytest.raises(SystemExit, match="Presets: game"):
        example.parse_args(["chess"])

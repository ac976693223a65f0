"""The example as a user runs it, shortened: the tiny model's success rises through TRL's own trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

from gem_core.run_folder import read_jsonl

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_trl_rebn.py"


@pytest.mark.l4
@pytest.mark.timeout(900)
def test_the_examples_success_rises(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--iterations", "80", "--output_dir", str(tmp_path)]
    subprocess.run(command, check=True, timeout=880, env={**os.environ, "OMP_NUM_THREADS": "1"})
    before, after = (row["success"] for row in read_jsonl(tmp_path / "metrics.jsonl") if row["split"] == "eval")
    print(f"greedy success on held-out seeds: {before:.3f} -> {after:.3f}")
    assert before <= 0.5
    assert after >= before + 0.2

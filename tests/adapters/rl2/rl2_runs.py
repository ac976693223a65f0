"""Whole runs of RL2's trainer on a CPU, and what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]


def rows_file(path: Path, env_ids: list[str], count: int) -> Path:
    """A prompt file; ids take turns, so that every run meets each."""
    lines = [
        {"extra_info": {"env_id": env_ids[i % len(env_ids)], "env_kwargs": "{}", "seed": i, "group": str(i)}}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def run(folder: Path, overrides: list[str]) -> str:
    """Runs ``ci/rl2_cpu/launch.py`` in ``folder``; returns what it printed."""
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
    }
    # Processes of the run's own address the server by the host's name.
    command = [sys.executable, str(ROOT / "ci" / "rl2_cpu" / "launch.py"), *overrides]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


def logged(output: str, name: str) -> list[float]:
    """The values of a metric, step by step."""
    lines = [line for line in output.splitlines() if re.search(r"Step \d+, ", line)]
    found = [re.search(rf"(?:^|[ ,]){re.escape(name)}: (-?[\d.e+-]+|nan)", line) for line in lines]
    return [float(m.group(1)) for m in found if m]


def same_weights(first: Path, second: Path) -> bool:
    """Whether two saved models have equal weights."""
    from transformers import AutoModelForCausalLM

    a, b = (AutoModelForCausalLM.from_pretrained(p, dtype=torch.float32).state_dict() for p in (first, second))
    assert a.keys() == b.keys()
    return all(torch.equal(a[k], b[k]) for k in a)

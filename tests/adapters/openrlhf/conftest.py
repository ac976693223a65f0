"""OpenRLHF on a CPU: the stand-ins of ``ci/openrlhf_cpu`` for this process and all that it starts."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STAND_INS = ROOT / "ci" / "openrlhf_cpu"
#: The same variables as the example's CPU mode sets.
ENVIRONMENT = {
    "OPENRLHF_CPU": "1",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
PATHS = [str(STAND_INS), str(ROOT / "tests"), str(ROOT / "tests" / "adapters")]

os.environ.update(ENVIRONMENT)
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
sys.path[:0] = [p for p in PATHS if p not in sys.path]
if not any(type(finder).__qualname__ == "StandInFinder" for finder in sys.meta_path):  # else Python's start did it
    spec = importlib.util.spec_from_file_location("openrlhf_stand_ins", STAND_INS / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    stand_ins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_ins)

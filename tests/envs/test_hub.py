"""A hub that is out of reach is an error at make, soon, that names the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("datasets")

PROGRAM = """
import time
import datasets, huggingface_hub  # not part of the time that is measured
import gem_core
from gem_core.envs import dataset_loading
dataset_loading.HUB_TIMEOUT_S = 1.0
start = time.monotonic()
try:
    gem_core.make("math:GSM8K")
except ConnectionError as e:
    print(type(e).__name__, "|", e)
print(time.monotonic() - start)
"""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("kind", ["silent", "refused", "offline"])
def test_make_fails_soon_and_says_how_to_go_on(kind: str, silent_port: int, tmp_path: object) -> None:
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{silent_port}"}
    if kind == "refused":
        environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    if kind == "offline":
        environment["HF_HUB_OFFLINE"] = "1"
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    message, seconds = result.stdout.strip().rsplit("\n", 1)
    assert message.startswith("DatasetUnavailableError | dataset 'axon-rl/GSM-8k'")
    assert "local" in message
    assert "sample" in message
    assert float(seconds) < 6

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("openai_server_for_tests.py")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a server; returns its ``base_url``."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}/v1"

    yield start
    for process in started:
        process.kill()
        process.communicate()

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from evaluation_support import CannedServer

SERVER = Path(__file__).with_name("openai_server_for_tests.py")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts ``openai_server_for_tests.py``; returns its ``base_url``."""
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


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    server = CannedServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = asyncio.run_coroutine_threadsafe(asyncio.start_server(server.serve, "127.0.0.1", 0), loop).result(5)
    server.base_url = f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}/v1"
    yield server

    async def stop() -> None:
        started.close()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(stop(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

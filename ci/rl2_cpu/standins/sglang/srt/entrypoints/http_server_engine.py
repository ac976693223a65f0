"""Starting a server in a process of its own."""

from __future__ import annotations

import multiprocessing
import time

import requests

from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.server_args import ServerArgs


def launch_server_process(server_args: ServerArgs) -> multiprocessing.Process:
    """Returns when the server answers."""
    process = multiprocessing.Process(target=launch_server, args=(server_args,))
    process.start()
    while True:
        if not process.is_alive():
            raise RuntimeError("the server did not start")
        try:
            requests.get(f"{server_args.url()}/health", timeout=5).raise_for_status()
            return process
        except requests.RequestException:
            time.sleep(0.2)

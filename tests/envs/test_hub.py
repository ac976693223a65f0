"""Datasets from a hub: one that answers (a stand-in on this machine), one that does not, and the cache."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")

NAME = "axon-rl/GSM-8k"
COMMIT = "a" * 40
FILES = {
    "README.md": b"# problems\n",
    "train.jsonl": b'{"problem": "1 + 1?", "answer": "2"}\n{"problem": "2 + 2?", "answer": "4"}\n',
}
PROGRAM = """
import json, sys, time
import datasets, huggingface_hub  # not part of the time that is measured
import gem_core
from gem_core.envs import dataset_loading
dataset_loading.HUB_TIMEOUT_S = 1.0
out = {}
for env_id in sys.argv[1:]:
    start = time.monotonic()
    try:
        env = gem_core.make(env_id)
        out[env_id] = sorted(env.reset()[0] for _ in range(len(env.dataset)))
    except Exception as e:
        out[env_id] = f"{type(e).__name__}: {e}"
    out["seconds"] = time.monotonic() - start
print(json.dumps(out))
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's protocol as ``load_dataset`` asks of it for one dataset of one file."""

    def log_message(self, *_: Any) -> None: ...

    def reply(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        about, files = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/"
        if path in (about, f"{about}/revision/{COMMIT}"):
            facts = {"id": NAME, "sha": COMMIT, "private": False, "gated": False, "disabled": False, "tags": []}
            self.reply(json.dumps({**facts, "siblings": [{"rfilename": f} for f in FILES]}).encode())
        elif path == f"{about}/tree/{COMMIT}":
            listing = [{"type": "file", "path": f, "size": len(c), "oid": "b" * 40} for f, c in FILES.items()]
            self.reply(json.dumps(listing).encode())
        elif path.startswith(files) and path.rsplit("/", 1)[1] in FILES:
            name = path.rsplit("/", 1)[1]
            self.reply(FILES[name], ETag=f'"{name}"', X_Repo_Commit=COMMIT)
        elif path.startswith((about, files)):
            self.reply(b"", 404, X_Error_Code="EntryNotFound")
        else:
            self.reply(b"", 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET


@pytest.fixture
def hub() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def make(home: Path, endpoint: str, *env_ids: str, **more: str) -> dict[str, Any]:
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1", **more}
    command = [sys.executable, "-c", PROGRAM, *env_ids]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    out: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return out


def test_a_dataset_comes_from_the_hub_and_then_from_the_cache(hub: str, tmp_path: Path) -> None:
    rows = ["1 + 1?", "2 + 2?"]
    out = make(tmp_path, hub, "math:GSM8K", "math:Math12K")
    assert out["math:GSM8K"] == rows
    assert "there is no such dataset on the hub, or it is private" in out["math:Math12K"]
    out = make(tmp_path, "http://127.0.0.1:9", "math:GSM8K", "math:Math12K")  # nothing listens there
    assert out["math:GSM8K"] == rows
    assert "the hub is out of reach" in out["math:Math12K"]
    assert out["seconds"] < 6
    out = make(tmp_path, hub, "math:GSM8K", "math:Math12K", HF_HUB_OFFLINE="1")
    assert out["math:GSM8K"] == rows
    assert "HF_HUB_OFFLINE" in out["math:Math12K"]


def test_a_hub_that_never_answers_is_an_error_soon_that_says_how_to_go_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        out = make(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", "math:GSM8K")
    message = out["math:GSM8K"]
    assert message.startswith(f"DatasetUnavailableError: dataset {NAME!r} cannot be fetched: the hub ")
    for way_out in ("local .jsonl or .parquet", "save_to_disk", "dataset= rows in memory", "dataset_name='sample'"):
        assert way_out in message
    assert out["seconds"] < 6

"""500 episodes against a faulty endpoint, killed twice: each recorded once, finished answers not paid for again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gem_core.evaluation import EvalResult, evaluate

EPISODES = 500
CONCURRENCY = 64
PROGRAM = Path(__file__).with_name("killed_evaluation.py")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_500_episodes_on_a_faulty_endpoint_survive_two_kills(serve: Callable[..., str], tmp_path: Path) -> None:
    ledger, folder = tmp_path / "ledger", tmp_path / "run"
    url = serve("--latency", "0.02", "--faults", "0.15", "--ledger", str(ledger))
    command = [sys.executable, str(PROGRAM), url, str(folder), str(EPISODES)]
    recorded = 0
    for kill_at in (120, 300):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while _lines(folder / "episodes.jsonl") < kill_at:
            assert process.poll() is None, "the evaluation ended before it was killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert recorded < _lines(folder / "episodes.jsonl") < EPISODES
        recorded = _lines(folder / "episodes.jsonl")
    last = subprocess.run(command, capture_output=True, text=True, check=True)
    assert last.stdout.startswith(f"{EPISODES} ")
    assert "'reused_answers': 0" not in last.stdout

    rows = [json.loads(line) for line in (folder / "episodes.jsonl").open(encoding="utf-8")]
    assert len(rows) == len({r["episode"]["episode_id"] for r in rows}) == EPISODES
    paid = Counter(ledger.read_text(encoding="utf-8").split())
    turns = sum(len(r["episode"]["turns"]) for r in rows)
    assert len(paid) == turns  # every turn was paid for, nothing else was
    # Twice only what was on its way when the process died.
    assert sum(paid.values()) - turns <= 2 * CONCURRENCY
    assert max(paid.values()) <= 3

    played, expert = EvalResult.read(folder), evaluate("game:GuessTheNumber-v0", "scripted", episodes=EPISODES)
    assert played.failed == 0
    figures = lambda result: {r.episode_id: (r.total_reward, r.turns, r.success) for r in result.records}  # noqa: E731
    assert figures(played) == figures(expert)
    assert not (folder / "responses.jsonl").exists()  # nothing is left to be resumed


def test_a_finished_evaluation_asks_nothing_again(serve: Callable[..., str], tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    url = serve("--ledger", str(ledger))
    command = [sys.executable, str(PROGRAM), url, str(tmp_path / "run"), "5"]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    paid = ledger.read_text(encoding="utf-8")
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert first.stdout.startswith("5 ")
    assert again.stdout.startswith("5 ")
    assert ledger.read_text(encoding="utf-8") == paid

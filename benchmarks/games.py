"""Resets a second and construction time of every language game, beside GEM 0.1's and TextArena's where an interpreter
with them is named.

    python benchmarks/games.py --gem-python PYTHON --textarena-python PYTHON [--ids 'game:Su*'] [--record]

The sides run in processes of their own and take turns, game by game and round by round, so that a slow spell of the
machine hits all of them; medians over the rounds are printed. Times are CPU seconds of the worker (all of this is one
thread of computing), so that other work on the machine does not count. TextArena plays the same game with the same size
where it has one. Both draw words from NLTK's ``words`` corpus. Where that corpus is not installed, a stand-in with as
many entries (850 basic words and 236,736 in all) is written to a temporary folder, since the cost that matters is that
of reading it.
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

#: TextArena's name and arguments of the same game.
TEXTARENA: dict[str, tuple[str, dict[str, Any]]] = {
    "game:Crosswords-v0-easy": ("Crosswords-v0", {"num_words": 3}),
    "game:FifteenPuzzle-v0-hard": ("FifteenPuzzle-v0", {}),
    "game:GuessTheNumber-v0": ("GuessTheNumber-v0", {"min_number": 1, "max_number": 20}),
    "game:Hangman-v0-hard": ("Hangman-v0", {}),
    "game:Mastermind-v0-hard": ("Mastermind-v0", {"code_length": 4, "num_numbers": 8}),
    "game:Minesweeper-v0-hard": ("Minesweeper-v0", {"rows": 8, "cols": 8, "num_mines": 12}),
    "game:Sokoban-v0-easy": ("Sokoban-v0", {"dim_room": (6, 6), "num_boxes": 2}),
    "game:Sokoban-v0-hard": ("Sokoban-v0", {"dim_room": (8, 8), "num_boxes": 4}),
    "game:Sudoku-v0-hard": ("Sudoku-v0", {"clues": 50}),
    "game:TowerofHanoi-v0-hard": ("TowerOfHanoi-v0", {"num_disks": 5}),
    "game:WordSearch-v0-hard": ("WordSearch-v0", {"hardcore": True}),
    "game:Wordle-v0-hard": ("Wordle-v0", {"word_length": 5}),
}
NAMES = {"ours": "ours", "gem": "GEM 0.1", "textarena": "TextArena"}
#: What the resets must be, in times GEM's.
WANTED = {"game:Sudoku-v0-hard": 20, "game:Sokoban-v0-hard": 200, "game:WordSearch-v0-hard": 50}


# -- the worker: standard library and one of the two packages -------------------------------------------------------


def worker(side: str) -> None:
    """Answers one JSON line per request: the arguments of :func:`measure`."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if side == "ours":
            import gem_core as gem
        else:
            import nltk

            nltk.download = lambda *args, **kwargs: True  # GEM's Wordle asks for a download at every construction
            if side == "gem":
                import gem
            else:
                gem = TextArena()
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                answer = measure(gem, **request)
            except Exception as e:
                answer = {"error": f"{type(e).__name__}: {str(e).strip()[:80]}"}
        print(json.dumps(answer), flush=True)


class TextArena:
    """TextArena's environments by our ids and with our ``reset``."""

    def make(self, id: str) -> Any:
        import textarena

        name, kwargs = TEXTARENA[id]
        env: Any = textarena.make(name, **kwargs)
        reset = env.reset
        env.reset = lambda seed=None: reset(num_players=1, seed=seed)
        return env


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
    parser.add_argument("--gem-python", help="a Python interpreter that has gem-llm 0.1.0")
    parser.add_argument("--textarena-python", help="a Python interpreter that has textarena")
    parser.add_argument("--ids", default="game:*", help="which ids, as a glob")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.25, help="of resets per id, side and round")
    parser.add_argument("--unseeded", action="store_true", help="reset() as between the episodes of a rollout")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    parser.add_argument("--worker", choices=("ours", "gem", "textarena"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return

    from _table import machine, record, render

    import gem_core

    print(machine(), flush=True)
    ids = [i for i in gem_core.list_envs("game:*") if fnmatch.fnmatchcase(i, args.ids)]
    with tempfile.TemporaryDirectory() as folder:
        sides = {"ours": Side(sys.executable, "ours", dict(os.environ))}
        for side, python in (("gem", args.gem_python), ("textarena", args.textarena_python)):
            if python:
                sides[side] = Side(python, side, words_folder(python, Path(folder) / side))
        rows = {i: compare(i, sides, args.rounds, args.seconds, args.unseeded) for i in ids}
        for side in sides.values():
            side.close()
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    head = ["resets/s", *(NAMES[s] for s in sides), *(f"times {NAMES[s]}" for s in list(sides)[1:]), "wanted"]
    head += [f"construction, ms: {NAMES[s]}" for s in list(sides)[:2]]
    text = render(head, [cells(i, row, list(sides)) for i, row in rows.items()])
    text += (
        "\n\nFifteenPuzzle differs: GEM 0.1.0 shuffles the tiles, which leaves half of its boards "
        "without a solution; ours makes 100 legal moves."
    )
    print("\n" + text)
    if args.record:
        record("Games", text, "python benchmarks/games.py --gem-python PYTHON --textarena-python PYTHON")


def cells(env_id: str, row: dict[str, dict[str, Any]], sides: list[str]) -> list[str]:
    """One line of the table; "-" where a side does not have the game or failed."""
    rates = [row.get(s, {}).get("resets_per_s") for s in sides]
    times = [f"{rates[0] / r:,.1f}" if rates[0] and r else "-" for r in rates[1:]]
    built = [row.get(s, {}).get("construct_ms") for s in sides[:2]]
    return [
        env_id,
        *("-" if r is None else f"{r:,.0f}" if r >= 10 else f"{r:,.1f}" for r in rates),
        *times,
        str(WANTED.get(env_id, 1)) if len(sides) > 1 else "-",
        *("-" if b is None else f"{b:.2f}" for b in built),
    ]


def compare(
    env_id: str, sides: dict[str, Side], rounds: int, seconds: float, unseeded: bool
) -> dict[str, dict[str, Any]]:
    """Measures one id on all sides and prints its row."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for i in range(rounds):
        for name in list(sides) if i % 2 == 0 else list(reversed(sides)):
            if name == "textarena" and env_id not in TEXTARENA:
                continue
            if not any("error" in a for a in answers[name]):
                answers[name].append(sides[name].ask(id=env_id, seconds=seconds, construct=i == 0, unseeded=unseeded))
    row: dict[str, dict[str, Any]] = {}
    for name, got in answers.items():
        if not got:
            continue
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


def print_row(env_id: str, row: dict[str, dict[str, Any]]) -> None:
    """As it is measured; the table follows at the end."""
    for name, figures in row.items():
        if "error" in figures:
            print(f"{env_id:34} {NAMES[name]:10} {figures['error']}", flush=True)
            continue
        built = f"{figures['construct_ms']:.3f} ms, the first {figures['construct_first_ms']:.1f} ms"
        print(f"{env_id:34} {NAMES[name]:10} {figures['resets_per_s']:>12,.1f} resets/s   made in {built}", flush=True)


if __name__ == "__main__":
    main()

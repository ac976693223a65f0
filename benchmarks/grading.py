"""Grades a table of answers with three graders, and measures how many answers a second they grade.

    python benchmarks/grading.py                                  # ours and math-verify alone
    python benchmarks/grading.py --gem-python OTHER/bin/python    # and GEM 0.1, from an environment that has gem-llm
    python benchmarks/grading.py --record ...                     # writes the verdicts into the table

The rate is over answers made from a seed, all different, half of them wrong: whole numbers, decimals, fractions, mixed
numbers, units, expressions, lists, sets, intervals, words. GEM grades as its MathEnv does with ``use_mp=True``, one
environment in each of two threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "tests" / "grading" / "graded_answers.jsonl"
Row = dict[str, Any]

# Runs under another interpreter; prints one JSON object.
_GEM = """
import json, logging, multiprocessing, sys, threading, time
def main():
    import gem.envs.math_env as m
    logging.disable(logging.CRITICAL)
    from datasets import Dataset
    table, rate = json.load(open(sys.argv[1]))
    pool, verdicts = multiprocessing.Pool(1), []
    for row in table:
        try:
            verdicts.append(bool(pool.apply_async(m.MathEnv.check_correct, (row["response"], row["gold"])).get(10)))
        except multiprocessing.TimeoutError:
            verdicts.append(None)
            pool.terminate()
            pool = multiprocessing.Pool(1)
    pool.terminate()
    parts = [rate[0::2], rate[1::2]]
    data = [Dataset.from_list([{"problem": "?", "answer": r["gold"]} for r in p]) for p in parts]
    envs = [m.MathEnv(dataset=d, use_mp=True, eval=True) for d in data]
    wrong = [0, 0]
    def play(k):
        for row in parts[k]:
            envs[k].reset()
            wrong[k] += bool(envs[k].step(row["response"])[1]) != row["equal"]
    for e in envs:  # import SymPy in the pools before the clock starts
        e.reset(idx=0); e.step("\\\\boxed{x+1}")
        e.idx = 0
    start = time.perf_counter()
    threads = [threading.Thread(target=play, args=(k,)) for k in (0, 1)]
    [t.start() for t in threads]; [t.join() for t in threads]
    seconds = time.perf_counter() - start
    print(json.dumps({"verdicts": verdicts, "seconds": seconds, "wrong": sum(wrong)}), flush=True)
    import os
    os._exit(0)
if __name__ == "__main__":
    main()
"""
_MATH_VERIFY = """
import json, logging, sys
from math_verify import parse, verify
logging.disable(logging.CRITICAL)
rows = json.load(open(sys.argv[1]))[0]
def gold(text):
    return parse(text if "\\\\boxed" in text else "$" + text + "$")
print(json.dumps([bool(verify(gold(r["gold"]), parse(r["response"]))) for r in rows]))
"""


def workload(count: int, seed: int = 7) -> list[Row]:
    """``count`` different answers as a policy gives them, about half of them equal to their reference."""
    rng = random.Random(seed)
    rows: dict[tuple[str, str], Row] = {}
    while len(rows) < count:
        right = rng.random() < 0.5
        a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 30)
        gold, same, other = rng.choice(_KINDS)(a, b, c)
        answer = same if right else other
        rows[(gold, answer)] = {"gold": gold, "response": f"Therefore $\\boxed{{{answer}}}$.", "equal": right}
    return list(rows.values())


_KINDS = [
    *[lambda a, b, c: (str(a * b), str(a * b), str(a * b + c))] * 6,
    lambda a, b, c: (str(a * 1000 + b), f"{a},{b:03d}", f"{a},{(b + c) % 1000:03d}"),
    lambda a, b, c: (f"{a}.{b}", f"{a}.{b}0", f"{a}.{b + c}"),
    lambda a, b, c: (f"\\frac{{{a}}}{{{b}}}", f"\\frac{{{a * c}}}{{{b * c}}}", f"\\frac{{{a + 1}}}{{{b}}}"),
    lambda a, b, c: (f"\\frac{{{a}}}{{{b}}}", f"{a}/{b}", f"{b + a + 1}/{a}"),
    lambda a, b, c: (f"\\frac{{{2 * a + 1}}}{{2}}", f"{a}\\frac{{1}}{{2}}", f"{a + 1}\\frac{{1}}{{2}}"),
    lambda a, b, c: (f"{a}\\text{{ cm}}^2", f"{a}", f"{a + c}\\text{{ cm}}^2"),
    lambda a, b, c: (f"{a}\\sqrt{{{c}}}", f"\\sqrt{{{a * a * c}}}", f"\\sqrt{{{a * a * c + 1}}}"),
    lambda a, b, c: (f"{a}\\pi", f"{a}\\pi", f"{a + c}\\pi"),
    lambda a, b, c: (f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})", f"(x+{a})(x+{b + 1})"),
    lambda a, b, c: (f"{a}x+{b}", f"{b}+{a}x", f"{a + b}x+{b + 1}"),
    lambda a, b, c: (f"({a},{b})", f"({a}, {b})", f"({b + 100},{a})"),
    lambda a, b, c: (f"\\{{{a},{b},{100 + c}\\}}", f"\\{{{100 + c},{a},{b}\\}}", f"\\{{{a},{b},{200 + c}\\}}"),
    lambda a, b, c: (f"(-\\infty,{a}]", f"(-\\infty, {a}]", f"(-\\infty,{a})"),
    lambda a, b, c: (f"\\text{{day {a}}}", f"day {a}", f"\\text{{day {a + c}}}"),
]


def ours(rows: list[Row], threads: int = 8) -> tuple[list[bool], float]:
    from gem_core.grading.math import grade_math

    def grade(row: Row) -> bool:
        return grade_math(row["response"], row["gold"]).correct

    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(grade, [{"response": "\\boxed{x+1}", "gold": "x+y"}] * 2))  # starts the workers
        start = time.perf_counter()
        verdicts = list(executor.map(grade, rows))
    return verdicts, time.perf_counter() - start


def run(python: str, program: str, table: list[Row], rate: list[Row]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        data, script = Path(folder, "rows.json"), Path(folder, "grade.py")
        data.write_text(json.dumps([table, rate]))
        script.write_text(program)
        result = subprocess.run([python, script, data], stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gem-python", help="interpreter of an environment with gem-llm 0.1")
    parser.add_argument("--count", type=int, default=1000, help="answers for the rate")
    parser.add_argument("--record", action="store_true", help="write the verdicts into the table")
    parser.add_argument("--all", action="store_true", help="print every row, not only those that some grader misjudges")
    args = parser.parse_args()

    table = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    rate = workload(args.count)
    columns: dict[str, list[bool | None]] = {"ours": list(ours(table)[0])}
    columns["math_verify"] = run(sys.executable, _MATH_VERIFY, table, [])
    gem = run(args.gem_python, _GEM, table, rate) if args.gem_python else None
    columns["gem"] = gem["verdicts"] if gem else [r.get("gem") for r in table]

    show = {True: "equal", False: "different", None: "hangs"}
    print(f"{'ours':>10} {'math_verify':>12} {'gem':>10} | {'truth':<9} | reference | response")
    for i, row in enumerate(table):
        verdicts = [columns[name][i] for name in ("ours", "math_verify", "gem")]
        if args.all or any(v != row["equal"] for v in verdicts):
            marks = [show[v] + ("" if v == row["equal"] else "!") for v in verdicts]
            judged = f"{marks[0]:>10} {marks[1]:>12} {marks[2]:>10} | {show[row['equal']]:<9}"
            print(f"{judged} | {row['gold']} | {row['response']}")
    for name, verdicts in columns.items():
        print(f"{name}: {sum(v != r['equal'] for v, r in zip(verdicts, table, strict=True))} false of {len(table)}")

    verdicts, seconds = ours(rate)
    wrong = sum(v != r["equal"] for v, r in zip(verdicts, rate, strict=True))
    print(f"ours: {len(rate) / seconds:.0f} answers/s ({len(rate)} answers, {os.cpu_count()} cores, {wrong} false)")
    if gem:
        print(f"gem (use_mp=True): {len(rate) / gem['seconds']:.0f} answers/s ({gem['wrong']} false)")
        print(f"ratio: {gem['seconds'] / seconds:.1f}")
    if args.record:
        for i, row in enumerate(table):
            row |= {name: columns[name][i] for name in ("gem", "math_verify") if name != "gem" or gem}
        TABLE.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in table), encoding="utf-8")


if __name__ == "__main__":
    main()

"""CodeEnv on local data."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gem_core as gem
from gem_core.envs.code_env import CodeEnv

pytest.importorskip("gem_core.grading.code")

SOLUTIONS = [
    "print(sum(map(int, input().split())))",
    "print(input()[::-1])",
    "n = int(input()); v = list(map(int, input().split())); print(max(v) - min(v))",
    "a, b = 0, 1\nfor _ in range(int(input())): a, b = b, a + b\nprint(a)",
    (
        "d, ok = 0, True\nfor c in input():\n    d += 1 if c == '(' else -1\n    ok &= d >= 0\n"
        "print('YES' if ok and not d else 'NO')"
    ),
    "import math\nprint(f'{math.pi * float(input()) ** 2:.6f}')",
    "print('\\n'.join(sorted({input() for _ in range(int(input()))})))",
    "def count_vowels(text):\n    return sum(c in 'aeiou' for c in text.lower())",
]
CODE_IDS = ["code:CodeContest", "code:Taco8k", "code:PrimeIntellect15k", "eval:CodeContest"]


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```"


@pytest.mark.parametrize("env_id", CODE_IDS)
def test_each_id_is_played_on_the_sample(env_id: str) -> None:
    env = gem.make(env_id, dataset_name="sample")
    env.reset(options={"index": 0})
    _, reward, terminated, truncated, info = env.step(fenced(SOLUTIONS[0]))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["verdict"] == "accepted"
    assert info["passed"] == info["total"] == 3
    env.reset(seed=1)
    assert env.step("no code")[1] == -0.1
    env.reset(seed=1)
    assert env.step(env.sample_random_action())[2]


def test_every_sample_problem_can_be_solved() -> None:
    env = CodeEnv("sample", eval=True)
    verdicts = []
    for solution in SOLUTIONS:
        env.reset()
        verdicts.append(env.step(fenced(solution))[4]["verdict"])
    assert verdicts == ["accepted"] * len(env.dataset)


def test_wrong_programs_and_shares() -> None:
    tests: dict[str, Any] = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]}
    rows = [{"problem": "Square it.", "tests": json.dumps(tests)}]
    env, shared = CodeEnv(dataset=rows), CodeEnv(dataset=rows, reward="share")
    env.reset()
    _, reward, _, _, info = env.step(fenced("print(input())"))
    assert (reward, info["success"]) == (0.0, False)
    assert info["verdict"].startswith("wrong")
    shared.reset()
    assert shared.step(fenced("print(input())"))[1] == 0.5
    env.reset()
    assert env.step(fenced("print(int(input()) ** 2)"))[1] == 1.0


def test_only_the_longest_tests_run() -> None:
    tests = {"inputs": [f"{'9' * n}\n" for n in range(1, 21)], "outputs": ["x"] * 20}
    env = CodeEnv(dataset=[{"problem": "?", "tests": tests}], max_tests=3)
    env.reset()
    assert [len(i) - 1 for i in env.tests["inputs"]] == [20, 19, 18]

"""Every task of the installed reasoning-gym: made, seeded, graded; and what guards against its surprises."""

from __future__ import annotations

import json
import random
import re
import time
from collections import deque
from typing import Any

import pytest

pytest.importorskip("reasoning_gym")

import numpy as np

import gem_core as gem
from gem_core.envs.reasoning_gym import _COPIED, ReasoningGymEnv, _create, _package, make_entry, task_names

TASKS = task_names()


# Tasks whose instances carry no answer, since many are right: one is found here.


def solve_boxnet(metadata: dict[str, Any]) -> str:
    squares = metadata["initial_state"]
    plan = []
    for colour in ("red", "blue", "green"):
        at, goal = (
            next([float(x) for x in s.split("_")] for s, items in squares.items() if f"{kind}_{colour}" in items)
            for kind in ("box", "target")
        )
        while at != goal:
            axis = 0 if at[0] != goal[0] else 1
            to = list(at)
            to[axis] += 1 if goal[axis] > at[axis] else -1
            plan.append({f"Agent[{at[0]}, {at[1]}]": f"move(box_{colour}, square[{to[0]}, {to[1]}])"})
            at = to
        plan.append({f"Agent[{at[0]}, {at[1]}]": f"move(box_{colour}, target_{colour})"})
    return json.dumps(plan)


def solve_rush_hour(metadata: dict[str, Any]) -> str:
    """Breadth-first over boards; the red car ``A`` leaves when it stands at the right edge."""
    config = metadata["board_config"]
    shown = {label: chr(ord("A") + i) for i, label in enumerate(sorted(set(config) - {"o", "x"}))}
    start = "".join(shown.get(c, c) for c in config)  # the question names the cars afresh, without gaps
    queue, came_from = deque([start]), {start: ("", "")}
    while queue:
        board = queue.popleft()
        cells: dict[str, list[int]] = {}
        for i, label in enumerate(board):
            if label not in "ox":
                cells.setdefault(label, []).append(i)
        if cells["A"][-1] % 6 == 5:
            moves = []
            while board != start:
                board, move = came_from[board]
                moves.append(move)
            return " ".join(reversed(moves))
        for label, where in cells.items():
            stride = where[1] - where[0]
            for sign in (1, -1):
                edge = where[-1] if sign > 0 else where[0]
                to = edge + sign * stride
                inside = 0 <= to < 36 and (stride == 6 or to // 6 == edge // 6)
                if inside and board[to] == "o":
                    gone = where[0] if sign > 0 else where[-1]
                    changed = list(board)
                    changed[to], changed[gone] = label, "o"
                    after = "".join(changed)
                    if after not in came_from:
                        came_from[after] = (board, f"{label}{'+' if sign > 0 else '-'}1")
                        queue.append(after)
    raise AssertionError("no solution")


SOLVERS: dict[str, Any] = {
    "boxnet": solve_boxnet,
    "graph_color": lambda m: json.dumps(m["possible_answer"]),
    "propositional_logic": lambda m: m["example_answer"],
    "rubiks_cube": lambda m: m["example_correct_answer"],
    "rush_hour": solve_rush_hour,
}


def oracle(env: ReasoningGymEnv) -> str:
    if env.entry["answer"] is not None:
        return str(env.entry["answer"])
    return str(SOLVERS[env.name](env.entry["metadata"]))


def test_all_tasks_of_the_package_are_ids() -> None:
    assert len(TASKS) >= 100
    assert [f"rg:{t}" for t in TASKS] == [i for i in gem.list_envs() if i.startswith("rg:")]
    with pytest.raises(ValueError, match="did you mean rg:chain_sum"):
        gem.make("rg:chainsum")


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_made_seeded_and_graded(task: str) -> None:
    before = random.getstate(), [np.array(x).tolist() for x in np.random.get_state()[1:]]  # noqa: NPY002
    env = gem.make(f"rg:{task}")
    assert isinstance(env, ReasoningGymEnv)
    observation, info = env.reset(seed=11)
    entry = env.entry
    again = gem.make(f"rg:{task}")
    assert (again.reset(seed=11), again.unwrapped.entry) == ((observation, info), entry)  # type: ignore[attr-defined]
    assert observation
    assert info["success"] is False

    answer = oracle(env)
    assert not re.search(r"\\boxed|</answer>", answer)
    _, reward, terminated, truncated, info = env.step(f"Thus <answer>{answer}</answer>")
    assert (reward, terminated, truncated, info["verdict"]) == (1.0, True, False, "equal")
    assert info["success"] is info["correct"] is True

    env.reset(seed=11)
    _, reward, terminated, _, info = env.step(env.sample_random_action())
    assert 0.0 <= reward < 1.0
    assert terminated
    assert info["success"] is False
    env.reset(seed=11)
    assert env.step("no answer")[1:3] == (0.0, True)
    assert (random.getstate(), [np.array(x).tolist() for x in np.random.get_state()[1:]]) == before  # noqa: NPY002


def test_instances_are_fresh() -> None:
    env = gem.make("rg:chain_sum")
    env.reset(seed=1)
    questions = {env.reset()[0] for _ in range(600)}
    assert len(questions) > 590  # not the same 500 again


def test_a_fixed_list_is_passed_through_like_a_dataset() -> None:
    env = ReasoningGymEnv("leg_counting", size=5, seed=42)
    first = [env.reset()[0] for _ in range(5)]
    assert len(set(first)) == 5
    assert sorted(env.reset()[0] for _ in range(5)) == sorted(first)
    dataset = _package().create_dataset("leg_counting", size=5, seed=42)
    assert [env.reset(options={"index": i})[0] for i in range(5)] == [dataset[i]["question"] for i in range(5)]
    with pytest.raises(ValueError, match="from 0 to 4"):
        env.reset(options={"index": 5})
    with pytest.raises(ValueError, match="size="):
        ReasoningGymEnv("leg_counting").reset(options={"index": 0})


@pytest.mark.parametrize("task", sorted(_COPIED & set(TASKS)))
def test_copied_generators_make_what_fresh_ones_make(task: str) -> None:
    package = _package()
    seed = 123_456_789
    assert make_entry(task, seed, 1, 0, {}) == _create(package, task, seed, 1, {})[0]


def test_state_round_trips_through_json() -> None:
    env = gem.make("rg:number_sorting")
    env.reset(seed=2)
    twin = env.spawn()
    twin.set_state(json.loads(json.dumps(env.get_state())))
    action = f"\\boxed{{{oracle(env)}}}"  # type: ignore[arg-type]
    assert twin.step(action) == env.step(action)
    assert twin.reset() == env.reset()
    assert env.spawn(same_state=True).reset() == env.reset()


def test_partial_credit_is_the_tasks_own() -> None:
    env = gem.make("rg:letter_jumble")
    env.reset(seed=5)
    words = oracle(env).split()  # type: ignore[arg-type]
    _, reward, _, _, info = env.step("\\boxed{" + " ".join([*words[:-1], "zzz"]) + "}")
    assert 0.0 < reward < 1.0
    assert info["verdict"] == "partial"


def test_an_answer_that_runs_away_is_stopped() -> None:
    env = gem.make("rg:rubiks_cube", timeout=2.0)
    env.reset(seed=1)
    start = time.monotonic()
    _, reward, _, _, info = env.step("\\boxed{R9999999}")
    assert time.monotonic() - start < 5.0
    assert reward < 1
    assert info["verdict"] in ("partial", "time_limit", "memory_limit")


def test_upstream_faults_are_corrected() -> None:
    # game_of_life_halting takes bool() of the texts "True" and "False", so its own scorer calls any answer right.
    dataset = _package().create_dataset("game_of_life_halting", size=1, seed=1)
    wrong = "False" if dataset[0]["answer"] == "True" else "True"
    assert dataset.score_answer(wrong, dataset[0]) == 1.0
    env = gem.make("rg:game_of_life_halting")
    env.reset(seed=1)
    flipped = "False" if oracle(env) == "True" else "True"  # type: ignore[arg-type]
    assert env.step(f"\\boxed{{{flipped}}}")[1] == 0.0
    # prime_factorization and boxnet raise on answers that are not of their form.
    primes = _package().create_dataset("prime_factorization", size=1, seed=1)
    with pytest.raises(ValueError, match="invalid literal"):
        primes.score_answer("none", primes[0])
    for task in ("prime_factorization", "boxnet"):
        env = gem.make(f"rg:{task}")
        env.reset(seed=1)
        assert env.step("\\boxed{none}")[1] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "no_such_task"}, "no task 'no_such_task'"),
        ({"name": "chain_sums"}, "did you mean chain_sum"),
        ({"name": "chain_sum", "config": {"min_term": 3}}, "min_term"),
        ({"name": "chain_sum", "config": {"min_terms": 0}}, "refuses config"),
        ({"name": "chain_sum", "size": 0}, "size"),
        ({"name": "chain_sum", "seed": -1}, "seed"),
        ({"name": "chain_sum", "timeout": 0}, "timeout"),
    ],
)
def test_nonsense_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReasoningGymEnv(**arguments)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ImportError, match=r"gem-adapters\[math\]"):
        gem.make("rg:chain_sum")

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gem_core.evaluation import EpisodeRecord, EvalResult, Intervals, compare

BASE = EpisodeRecord(
    env_id="game:A-v0",
    episode_id="",
    task="",
    success=False,
    total_reward=0.0,
    turns=2,
    sampled_tokens=10,
    prompt_tokens=None,
    tool_calls=None,
    tool_errors=None,
    stop_reason="terminated",
    failed=False,
)


def records(env: str, outcomes: dict[int, list[bool]], **changes: object) -> list[EpisodeRecord]:
    return [
        replace(
            BASE,
            env_id=env,
            episode_id=f"{env}:{task}:{i}",
            task=f"{env}:{task}",
            success=won,
            total_reward=float(won),
            **changes,  # type: ignore[arg-type]
        )
        for task, wins in outcomes.items()
        for i, won in enumerate(wins)
    ]


def result(*parts: list[EpisodeRecord], name: str = "m") -> EvalResult:
    return EvalResult({"policy": {"policy": name}}, [r for p in parts for r in p], Intervals(resamples=200))


def test_means_are_over_tasks_and_samples_make_pass_at_k() -> None:
    r = result(records("e", {0: [True, False, False, False], 1: [True, True, True, True], 2: [False] * 4}))
    metrics = r.envs[0].metrics
    assert metrics["success"].value == metrics["avg@4"].value == metrics["pass@1"].value == pytest.approx(5 / 12)
    assert metrics["pass@2"].value == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics["pass@4"].value == pytest.approx(2 / 3)
    assert metrics["success"].n == 3
    low, high = metrics["success"].low, metrics["success"].high
    assert low is not None
    assert high is not None
    assert low < 5 / 12 < high


def test_failed_episodes_are_counted_but_in_no_mean() -> None:
    good = records("e", {0: [True], 1: [True]})
    bad = records("e", {2: [False]}, failed=True, stop_reason="policy_error", error="gone")
    r = result(good, bad)
    assert r.envs[0].metrics["success"].value == 1.0
    assert (r.envs[0].tasks, r.envs[0].episodes, r.envs[0].failed) == (2, 3, 1)
    assert r.errors() == {"gone": 1}
    assert "stop/policy_error" not in r.envs[0].metrics


def test_where_all_failed_there_are_no_figures() -> None:
    r = result(records("e", {0: [False]}, failed=True, stop_reason="env_error"))
    assert r.envs[0].metrics == {}
    assert json.loads(r.to_json())["envs"][0]["metrics"] == {}


def test_stopped_before_a_verdict_is_not_solved_where_others_have_one() -> None:
    cut = [replace(r, success=None, stop_reason="context_length") for r in records("e", {1: [False]})]
    metrics = result(records("e", {0: [True]}), cut).envs[0].metrics
    assert metrics["success"].value == 0.5
    assert metrics["stop/context_length"].value == 0.5


def test_the_average_weighs_environments_alike() -> None:
    r = result(records("a", {i: [True] for i in range(10)}), records("b", {0: [False], 1: [False]}))
    assert r.average["success"].value == 0.5
    assert r.average["success"].n == 2
    only_one = result(records("a", {0: [True]}), records("b", {0: [False]}, tool_calls=3, tool_errors=1))
    assert "tool_calls" not in only_one.average
    assert only_one.envs[1].metrics["tool_calls"].value == 3.0


def test_intervals_follow_from_their_seed() -> None:
    parts = records("e", {i: [i % 3 == 0] for i in range(30)})
    assert result(parts).to_json() == result(parts).to_json()
    other = EvalResult({}, parts, Intervals(resamples=200, seed=1))
    assert other.envs[0].metrics["success"] != result(parts).envs[0].metrics["success"]


def test_tables_in_markdown_and_latex() -> None:
    r = result(records("game:A_b-v0", {0: [True, False], 1: [False, False]}), records("c", {0: [True, True]}))
    lines = r.to_markdown().splitlines()
    assert lines[0].startswith("| environment | tasks | episodes | failed | success | return | avg@2 | pass@2 |")
    assert len({line.count("|") for line in lines}) == 1
    assert lines[-1].startswith("| average | 3 | 6 | 0 | 0.625 [")
    latex = r.to_latex(["success"])
    assert r"game:A\_b-v0 & 2 & 4 & 0 & 0.250 [" in latex
    assert latex.count(r"\midrule") == 2
    assert latex.startswith(r"\begin{tabular}{lrrrr}")
    with pytest.raises(ValueError, match="no metric is called 'succes'"):
        r.to_markdown(["succes"])


def test_paired_comparison_finds_a_small_but_steady_difference() -> None:
    """Tasks differ far more than the runs do: only pairing shows it."""
    hard = {i: [i % 2 == 0] * 4 for i in range(40)}
    better = {i: [*wins[:3], True] for i, wins in hard.items()}
    c = compare(result(records("e", better), name="new"), result(records("e", hard), name="old"), ["success"])
    [d] = c.differences
    assert (d.pairs, d.a, d.b) == (40, pytest.approx(0.625), pytest.approx(0.5))
    assert d.difference.value == pytest.approx(0.125)
    assert d.difference.low is not None
    assert d.difference.low > 0
    assert d.p < 0.001
    assert c.to_markdown().splitlines()[2].startswith("| e | success | 40 | 0.625 | 0.500 | 0.125 [")
    back = compare(result(records("e", hard)), result(records("e", better)), ["success"]).differences[0]
    assert back.difference.value == pytest.approx(-0.125)


def test_equal_runs_do_not_differ() -> None:
    r = result(records("e", {i: [i % 2 == 0] for i in range(20)}))
    d = compare(r, r).differences[0]
    assert (d.difference.value, d.difference.low, d.difference.high, d.p) == (0.0, 0.0, 0.0, 1.0)


def test_only_shared_tasks_are_compared_and_the_average_is_over_environments() -> None:
    a = result(records("x", {0: [True], 1: [True], 7: [True]}), records("y", {0: [False]}), name="a")
    b = result(records("x", {0: [False], 1: [True]}), records("y", {0: [True], 5: [True]}), name="b")
    c = compare(a, b, ["success"])
    assert [(d.env_id, d.pairs, d.difference.value) for d in c.differences] == [
        ("x", 2, 0.5),
        ("y", 1, -1.0),
        ("average", 3, -0.25),
    ]
    assert len(c.notes) == 2
    with pytest.raises(ValueError, match="share no task"):
        compare(a, result(records("z", {0: [True]})))
    with pytest.raises(ValueError, match="both have the metric 'pass@2'"):
        compare(a, b, ["pass@2"])

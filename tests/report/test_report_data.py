"""The numbers and texts that a report embeds, without a browser."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_support import ENVS, append, make_run

from gem_core.episode import Episode
from gem_core.report import build_payload, read_run
from gem_core.report.curves import Point, group_curves, series_of
from gem_core.report.payload import cut, flatten, number, returns, wilson
from gem_core.run_folder import read_jsonl


def payload_of(*paths: Path, **options: Any) -> dict[str, Any]:
    return build_payload([read_run(p, **options) for p in paths])


def curve(payload: dict[str, Any], group: int = 0, split: str = "train") -> dict[str, Any]:
    (found,) = (c for c in payload["curves"] if c["group"] == group and c["split"] == split)
    return found


# -- curves -------------------------------------------------------------------------------------------------------


def test_one_run_is_its_own_curve_without_a_band(tmp_path: Path) -> None:
    payload = payload_of(make_run(tmp_path / "a", points=6))
    rows = [r for r in read_jsonl(tmp_path / "a" / "metrics.jsonl") if r["split"] == "train"]
    c = curve(payload)
    assert c["step"] == [r["step"] for r in rows]
    assert c["wall_s"] == [r["wall_s"] for r in rows]
    for name in ("success", "return", "turns", "loss"):
        assert c["metrics"][name] == {"mean": [pytest.approx(r[name]) for r in rows]}
    assert curve(payload, split="eval")["step"] == [0, 40]


def test_seeds_of_one_configuration_become_mean_lowest_and_highest(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"s{i}", seed=i, points=6) for i in range(3)]
    payload = payload_of(*paths)
    assert [g["runs"] for g in payload["groups"]] == [[0, 1, 2]]
    per_run = [[r["success"] for r in read_jsonl(p / "metrics.jsonl") if r["split"] == "train"] for p in paths]
    c = curve(payload)
    assert c["n"] == [3] * 6
    assert c["metrics"]["success"]["mean"] == pytest.approx([sum(v) / 3 for v in zip(*per_run, strict=True)])
    assert c["metrics"]["success"]["low"] == [min(v) for v in zip(*per_run, strict=True)]
    assert c["metrics"]["success"]["high"] == [max(v) for v in zip(*per_run, strict=True)]


def test_configurations_are_told_apart_by_the_settings_that_differ(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"{a}{s}", seed=s, advantage=a, points=2) for a in ("rebn", "grpo") for s in (0, 1)]
    payload = payload_of(*paths)
    assert [(g["label"], g["runs"]) for g in payload["groups"]] == [
        ("advantage=rebn", [0, 1]),
        ("advantage=grpo", [2, 3]),
    ]
    assert [r["group"] for r in payload["runs"]] == [0, 0, 1, 1]
    assert not any(r["notes"] for r in payload["runs"])


def test_the_same_seed_twice_is_not_passed_off_as_two_seeds(tmp_path: Path) -> None:
    payload = payload_of(*(make_run(tmp_path / name, seed=4, points=2) for name in ("a", "b")))
    assert payload["runs"][0]["notes"] == [
        "2 runs of this configuration have the same seed (4): the band is not one over seeds"
    ]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / parent / "run", points=2) for parent in ("a", "b")]
    names = [r["name"] for r in payload_of(*paths, paths[1])["runs"]]
    assert names == [str(Path("a", "run")), str(Path("b", "run")), f"{Path('b', 'run')} (2)"]


def points(values: dict[float, float | None], split: str = "train") -> list[Point]:
    return [Point(s, None, split, "", {"x": v}) for s, v in values.items()]


def test_runs_with_other_steps_are_interpolated_within_what_they_recorded() -> None:
    a, b = series_of(points({0: 0.0, 10: 10.0, 20: 20.0})), series_of(points({0: 2.0, 20: 2.0, 30: 2.0}))
    (c,) = group_curves([a, b])
    assert c["step"] == [0, 10, 20, 30]
    assert c["n"] == [2, 2, 2, 1]
    assert c["metrics"]["x"] == {"mean": [1.0, 6.0, 11.0, 2.0], "low": [0.0, 2.0, 2.0, 2.0], "high": [2, 10, 20, 2]}


def test_a_gap_stays_a_gap() -> None:
    a, b = series_of(points({0: 1.0, 10: None, 20: 1.0})), series_of(points({0: 3.0, 5: 3.0, 15: 3.0, 20: 3.0}))
    (c,) = group_curves([a, b])
    assert c["metrics"]["x"]["low"] == [1.0, 3.0, 3.0, 3.0, 1.0]  # at 5, 10 and 15 only b is known
    (alone,) = group_curves([a])
    assert alone["metrics"]["x"] == {"mean": [1.0, None, 1.0]}


def test_several_batches_of_one_step_become_their_mean() -> None:
    (c,) = group_curves([series_of([*points({0: 1.0}), *points({0: 4.0}), *points({8: None})])])
    assert (c["step"], c["metrics"]["x"]["mean"]) == ([0, 8], [2.5, None])


@given(
    st.lists(st.dictionaries(st.integers(0, 30), st.none() | st.floats(-1e6, 1e6), min_size=1), min_size=1, max_size=4)
)
def test_the_mean_lies_in_the_band_and_nothing_is_invented(runs: list[dict[int, float | None]]) -> None:
    (c,) = group_curves([series_of(points({float(s): v for s, v in r.items()})) for r in runs])
    assert c["step"] == sorted({s for r in runs for s in r})
    band = c["metrics"]["x"]
    for i, step in enumerate(c["step"]):
        recorded = [r[step] for r in runs if r.get(step) is not None]
        mean = band["mean"][i]
        low, high = (band[k][i] if len(runs) > 1 else mean for k in ("low", "high"))
        if recorded:
            assert low <= min(recorded)
            assert high >= max(recorded)
        if mean is not None:
            assert low - 1e-9 * abs(low) <= mean <= high + 1e-9 * abs(high)


def test_evaluations_inside_training_lines_are_curves_of_their_own(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", {"step": 3, "success": 0.5, "eval/success": 0.75, "note": "warm", "ok": True})
    payload = payload_of(tmp_path)
    assert curve(payload)["metrics"] == {"success": {"mean": [0.5]}}
    assert curve(payload, split="eval")["metrics"] == {"success": {"mean": [0.75]}}


def test_metrics_by_environment_are_curves_of_their_own(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", {"step": 0, "success": 0.5}, {"step": 0, "env_id": "b", "success": 0.1})
    assert [(c["env"], c["metrics"]["success"]["mean"]) for c in payload_of(tmp_path)["curves"]] == [
        ("", [0.5]),
        ("b", [0.1]),
    ]


def test_numbers_that_are_none_are_gaps(tmp_path: Path) -> None:
    append(
        tmp_path / "metrics.jsonl",
        '{"step": 0, "success": NaN, "loss": Infinity, "kl": 1}\n',
        '{"step": 1, "success": 0.5, "loss": -Infinity, "kl": 1e999}\n',
        f'{{"step": 2, "success": {10**400}, "wall_s": NaN}}\n',
        '{"success": 0.1}\n{"step": NaN, "success": 0.1}\n',
    )
    payload = payload_of(tmp_path)
    c = curve(payload)
    assert c["metrics"] == {
        "success": {"mean": [None, 0.5, None]},
        "loss": {"mean": [None, None, None]},
        "kl": {"mean": [1.0, None, None]},
    }
    assert "metrics.jsonl: 2 lines left out, they have no step" in payload["runs"][0]["notes"]
    json.dumps(payload, allow_nan=False)


# -- episodes -----------------------------------------------------------------------------------------------------


def test_every_recorded_episode_comes_out_as_it_was_played(tmp_path: Path) -> None:
    payload = payload_of(make_run(tmp_path / "a", points=6, envs=ENVS))
    rows = read_jsonl(tmp_path / "a" / "episodes.jsonl")
    assert len(payload["episodes"]) == len(rows) == payload["runs"][0]["recorded"]
    vocabulary = payload["runs"][0]["vocabulary"]
    for shown, row in zip(payload["episodes"], rows, strict=True):
        episode = Episode.from_dict(row["episode"])
        assert (shown["step"], shown["split"], shown["env"]) == (row["step"], row["split"], episode.env_id)
        assert (shown["seed"], shown["id"], shown["group"]) == (episode.seed, episode.episode_id, episode.group_id)
        assert (shown["stop"], shown["success"]) == (str(episode.stop_reason), episode.success)
        assert shown["return"] == pytest.approx(episode.total_reward)
        assert [t.get("g", 0.0) for t in shown["turns"]] == pytest.approx(episode.returns(0.9))
        for i, (t, turn) in enumerate(zip(shown["turns"], episode.turns, strict=True)):
            assert (t["obs"], t["act"], t["r"]) == (turn.observation, turn.action, turn.reward)
            assert (tuple(t["ids"]), tuple(t["ctx"])) == (turn.response_ids, turn.context_ids)
            assert t["lp"] == pytest.approx(turn.logprobs, rel=1e-3)
            assert [vocabulary[str(j)] for j in t["ids"]] == row["tokens"][i]
            assert t.get("a", 0.0) == pytest.approx(row["advantages"][i] if row["advantages"] else 0.0)
            assert t.get("new", False) == turn.new_sequence


def test_a_token_whose_text_differs_keeps_its_own(tmp_path: Path) -> None:
    turn = {"observation": "o", "action": "a", "reward": 0, "response_ids": [5]}
    episode = {"env_id": "e", "turns": [turn]}
    append(tmp_path / "episodes.jsonl", *({"step": 0, "episode": episode, "tokens": [[t]]} for t in ("x", "y")))
    payload = payload_of(tmp_path)
    assert payload["runs"][0]["vocabulary"] == {"5": "x"}
    assert [e["turns"][0].get("tok") for e in payload["episodes"]] == [None, ["y"]]


def test_long_texts_are_cut_in_the_middle_visibly(tmp_path: Path) -> None:
    turn = {"observation": "a" * 500_000 + "b" * 500_000, "action": "fine", "reward": 0}
    append(tmp_path / "episodes.jsonl", {"step": 0, "episode": {"env_id": "e", "turns": [turn]}})
    (shown,) = payload_of(tmp_path)["episodes"][0]["turns"]
    assert shown["cut"] == 980_000
    assert shown["obs"] == "a" * 15_000 + "\n[… 980,000 characters left out …]\n" + "b" * 5_000
    assert shown["act"] == "fine"


@given(st.text(max_size=60), st.integers(4, 80))
def test_a_cut_text_says_what_is_missing(text: str, most: int) -> None:
    shown, missing = cut(text, most)
    assert missing == max(0, len(text) - most)
    assert shown == text if not missing else shown.startswith(text[: most * 3 // 4])


def test_more_episodes_than_fit_are_thinned_out_evenly_and_it_says_so(tmp_path: Path) -> None:
    for i in range(103):
        append(tmp_path / "episodes.jsonl", {"step": i, "episode": {"env_id": "e", "turns": []}})
    run = read_run(tmp_path, max_episodes=25)
    assert [r["step"] for r in run.episodes] == list(range(2, 103, 5))  # the last one is kept
    assert "episodes.jsonl holds 103 episodes; every 5th one is shown" in run.notes
    size = (tmp_path / "episodes.jsonl").stat().st_size
    assert len(read_run(tmp_path, max_bytes=size // 3 + 1).episodes) == 35
    assert len(read_run(tmp_path).episodes) == 103


def test_a_reward_that_is_no_number_leaves_the_return_open(tmp_path: Path) -> None:
    turns = '[{"reward": 1}, {"reward": NaN}, {"reward": 2}]'
    append(tmp_path / "episodes.jsonl", f'{{"step": 0, "episode": {{"env_id": "e", "turns": {turns}}}}}\n')
    (episode,) = payload_of(tmp_path)["episodes"]
    assert episode["return"] is None
    assert [t.get("g") for t in episode["turns"]] == [None, None, 2.0]
    assert [t["r"] for t in episode["turns"]] == [1.0, None, 2.0]


def test_discounted_returns() -> None:
    assert returns([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]
    assert returns([], 1.0) == []


def test_results_by_environment_compare_first_and_last_quarter(tmp_path: Path) -> None:
    for step, success in ((0, False), (1, True), (2, True), (3, True)):
        for solved in (success, True):
            episode = {
                "env_id": "e",
                "success": solved,
                "stop_reason": "terminated",
                "turns": [{"reward": int(solved)}],
            }
            append(tmp_path / "episodes.jsonl", {"step": step, "split": "train", "episode": episode})
    (row,) = payload_of(tmp_path)["envs"]
    assert (row["env"], row["episodes"], row["steps"]) == ("e", 8, 4)
    assert (row["first"]["success"], row["last"]["success"]) == (0.5, 1.0)
    assert (row["first"]["return"], row["last"]["turns"]) == (0.5, 1.0)
    assert row["stops"] == [["terminated", 2]]


def test_wilson_interval_against_the_root_of_its_equation() -> None:
    for k, n in ((0, 10), (3, 10), (10, 10), (81, 263)):
        for bound in wilson(k, n):
            # The bounds solve (p - k/n)^2 = z^2 p (1 - p) / n.
            assert (bound - k / n) ** 2 == pytest.approx(1.959964**2 * bound * (1 - bound) / n, abs=1e-12)


# -- damaged and missing files ------------------------------------------------------------------------------------


def test_the_cut_line_of_a_crashed_run_is_noted_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=3)
    episodes = len(read_jsonl(run / "episodes.jsonl"))
    append(run / "metrics.jsonl", '{"step": 24, "succ')
    append(run / "episodes.jsonl", b'{"step": 24, "episode": {"env_id": "\xf0\x9f'.decode("utf-8", "replace"))
    payload = payload_of(run)
    cut_short = "left out, it is not JSON (the last line: the run was cut short, or is still writing)"
    assert payload["runs"][0]["notes"] == [
        f"metrics.jsonl, line 5: {cut_short}",
        f"episodes.jsonl, line {episodes + 1}: {cut_short}",
    ]
    assert curve(payload)["step"] == [0, 8, 16]
    assert len(payload["episodes"]) == episodes


def test_damage_inside_a_file_is_noted_by_line(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", {"step": 0, "x": 1}, '{"ste{"step": 1}\n', "[1]\n", "\n", {"step": 2, "x": 3})
    append(tmp_path / "episodes.jsonl", {"step": 0}, {"step": 0, "episode": {"turns": "none"}})
    payload = payload_of(tmp_path)
    assert payload["runs"][0]["notes"] == [
        "run.json is missing",
        "metrics.jsonl, line 2: left out, it is not JSON",
        "metrics.jsonl, line 3: left out, it is no JSON object",
        "episodes.jsonl, line 1: left out, it has no episode",
    ]
    assert curve(payload)["metrics"]["x"]["mean"] == [1.0, 3.0]
    assert payload["episodes"][0]["env"] == "(unnamed)"


def test_a_run_that_has_recorded_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"env_id": "game:Sudoku-v0"}')
    payload = payload_of(tmp_path)
    assert payload["title"] == "game:Sudoku-v0"
    assert payload["curves"] == payload["episodes"] == payload["envs"] == []
    assert payload["runs"][0]["notes"] == ["metrics.jsonl is missing", "episodes.jsonl is missing"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no run folder at .*absent"):
        read_run(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"holds none of run\.json, metrics\.jsonl, episodes\.jsonl"):
        read_run(tmp_path)
    config = tmp_path / "run.json"
    config.write_text("{")
    with pytest.raises(FileNotFoundError, match="it is a file"):
        read_run(config)
    with pytest.raises(ValueError, match=r"run\.json: not JSON"):
        read_run(tmp_path)
    config.write_text("[]")
    with pytest.raises(ValueError, match=r"run\.json: a JSON object is needed, this is list"):
        read_run(tmp_path)
    config.write_text("{}")
    append(tmp_path / "metrics.jsonl", "PNG\n", "IHDR\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: not one of its 2 lines is a JSON object"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match="max_episodes and max_bytes must be positive, got 0"):
        read_run(tmp_path, max_episodes=0)
    with pytest.raises(ValueError, match="at least one run"):
        build_payload([])


def test_small_parts() -> None:
    assert flatten({"a": {"b": 1, "c": {}}, "d": "x", "e": [1, None]}) == {
        "a.b": "1",
        "a.c": "{}",
        "d": "x",
        "e": "[1, null]",
    }
    assert [number(x) for x in (1, 2.5, True, "3", None, math.nan, math.inf)] == [1.0, 2.5] + [None] * 5

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_core.episode import Episode, StopReason, Turn
from gem_core.run_folder import RunFolder, read_jsonl


def an_episode(text: str = "hello") -> Episode:
    turn = Turn(observation=text, action="a", reward=1.0, context_ids=(1,), response_ids=(2, 3), logprobs=(-0.5, -0.1))
    return Episode(env_id="e", seed=3, episode_id="x", turns=[turn], terminated=True, stop_reason=StopReason.TERMINATED)


def test_metrics_and_episodes_read_back(tmp_path: Path) -> None:
    ticks = iter([10.0, 12.5, 14.0])
    run = RunFolder(tmp_path / "r", {"lr": 1e-3, "path": tmp_path}, tensorboard=False, clock=lambda: next(ticks))
    run.log_metrics(0, {"success": 0.5, "loss": float("nan")})
    run.log_metrics(4, {"success": 0.75}, split="eval")
    run.log_episodes(4, [an_episode()], advantages=[[0.25]], tokens=[[["he", "llo"]]])
    assert read_jsonl(run.metrics_path) == [
        {"step": 0, "split": "train", "wall_s": 2.5, "success": 0.5, "loss": None},
        {"step": 4, "split": "eval", "wall_s": 4.0, "success": 0.75},
    ]
    (row,) = read_jsonl(run.episodes_path)
    assert row["advantages"] == [0.25]
    assert row["tokens"] == [["he", "llo"]]
    assert Episode.from_dict(row["episode"]) == an_episode()
    assert json.loads((tmp_path / "r" / "run.json").read_text()) == {"lr": 1e-3, "path": str(tmp_path)}


@pytest.mark.parametrize("text", ["line\nbreak", "\u2028 \x85", "\ud800 alone", "\U0001f600", "\x00\x1c"])
def test_any_text_takes_one_line_and_reads_back(tmp_path: Path, text: str) -> None:
    run = RunFolder(tmp_path, tensorboard=False)
    run.log_episodes(0, [an_episode(text), an_episode("next")])
    rows = read_jsonl(run.episodes_path)
    shown = [r["episode"]["turns"][0]["observation"] for r in rows]
    assert shown == [text.encode("utf-8", "replace").decode(), "next"]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, tensorboard=False, clock=lambda: 0.0)
    for step in (0, 4, 8, 12):
        run.log_metrics(step, {"success": step / 12})
        run.log_episodes(step, [an_episode()])
    run.log_metrics(8, {"success": 0.9}, split="eval")
    again = RunFolder(tmp_path, tensorboard=False, resume=True, clock=lambda: 0.0)
    again.rewind(8)
    assert [(r["step"], r["split"]) for r in read_jsonl(again.metrics_path)] == [
        (0, "train"),
        (4, "train"),
        (8, "eval"),
    ]
    assert [r["step"] for r in read_jsonl(again.episodes_path)] == [0, 4]


def test_a_new_run_replaces_an_earlier_one(tmp_path: Path) -> None:
    RunFolder(tmp_path, tensorboard=False).log_metrics(0, {"success": 0.5})
    assert read_jsonl(RunFolder(tmp_path, tensorboard=False).metrics_path) == []


def test_a_line_cut_short_by_a_crash_is_left_out_but_damage_elsewhere_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st')
    assert read_jsonl(path) == [{"step": 1}]
    path.write_text('{"st\n{"step": 1}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl, line 1"):
        read_jsonl(path)


def test_advantages_must_match_the_turns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'x' has 1 turns, its advantages 2"):
        RunFolder(tmp_path, tensorboard=False).log_episodes(0, [an_episode()], advantages=[[0.0, 1.0]])


def test_tensorboard_events_are_written_where_installed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = RunFolder(tmp_path, tensorboard=True)
    run.log_metrics(0, {"success": 0.5})
    run.close()
    run.close()
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_line_cut_by_a_crash_does_not_swallow_what_is_written_after_the_resume(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, tensorboard=False)
    run.log_metrics(0, {"success": 0.1})
    run.log_metrics(8, {"success": 0.2})
    run.metrics_path.write_bytes(run.metrics_path.read_bytes()[:-7])
    run = RunFolder(tmp_path, resume=True, tensorboard=False)
    run.log_metrics(8, {"success": 0.3})
    run.log_metrics(16, {"success": 0.4})
    assert [r["success"] for r in read_jsonl(run.metrics_path)] == [0.1, 0.3, 0.4]

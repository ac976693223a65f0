"""What decides which environment an episode plays: labels, variables, flags; and the dataset command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gem_openrlhf import dataset
from gem_openrlhf._compat import SUPPORTED, check_version
from gem_openrlhf.dataset import EnvChoice
from gem_openrlhf.settings import VALIDATION_SEED, GemSettings

pytestmark = pytest.mark.l1
GUESS, WORDLE = "game:GuessTheNumber-v0", "game:Wordle-v0-easy"


def test_importing_the_package_imports_nothing_of_openrlhf() -> None:
    code = "import gem_openrlhf, sys; print([m for m in ('openrlhf', 'vllm', 'ray', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("found", ["0.9.10", "0.11.3", "1.0.0"])
def test_another_version_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_core._versions.version", lambda name: found)
    monkeypatch.delenv("GEM_ALLOW_UNTESTED", raising=False)
    with pytest.raises(ImportError, match=f"(?i)openrlhf.*{found}") as refused:
        check_version()
    assert SUPPORTED[0] in str(refused.value)


def test_a_missing_openrlhf_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("gem_core._versions.version", missing)
    with pytest.raises(ImportError, match=r"gem-adapters\[openrlhf\]"):
        check_version()


def test_a_label_wins_over_the_variables() -> None:
    settings = GemSettings.from_environ(
        {"GEM_ENV_ID": WORDLE, "GEM_ENV_KWARGS": '{"max_turns": 2}', "GEM_MAX_TURNS": "3", "GEM_WRAPPERS": "", "X": "1"}
    )
    assert (settings.env_id, settings.env_kwargs, settings.max_turns) == (WORDLE, {"max_turns": 2}, 3)
    row = settings.for_row("p", json.dumps({"env_id": GUESS, "seed": 7, "max_turns": 5}))
    assert (row.env_id, row.env_kwargs, row.seed, row.max_turns) == (GUESS, {}, 7, 5)
    assert settings.for_row("p", {"env_id": GUESS, "seed": 7}).seed == 7


@pytest.mark.parametrize("label", ["", "42", None, "{not json", '{"answer": 3}'])
def test_any_dataset_plays_the_variables_env_from_a_seed_of_its_text(label: Any) -> None:
    settings = GemSettings(env_id=GUESS)
    one, again = settings.for_row("a", label), settings.for_row("a", label)
    assert one == again
    assert one.seed is not None
    assert one.seed != settings.for_row("b", label).seed


@pytest.mark.parametrize(
    ("environ", "label", "match"),
    [
        ({}, "", "python -m gem_openrlhf.dataset"),
        ({}, '{"env_id": "x", "max_turn": 3}', "max_turn"),
        ({"GEM_MAX_TURNS": "many"}, "", "GEM_MAX_TURNS must be a number"),
        ({"GEM_ENV_KWARGS": "a=1"}, "", "GEM_ENV_KWARGS must be a JSON object"),
        ({"GEM_CONTEXT": "both"}, "", "context"),
        ({"GEM_MAX_TURNS": "0"}, "", "max_turns must be positive"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], label: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        GemSettings.from_environ(environ).for_row("p", label)


def test_group_ids_tell_starts_apart() -> None:
    rows = [
        GemSettings(GUESS, {}, 1),
        GemSettings(GUESS, {}, 2),
        GemSettings(WORDLE, {}, 1),
        GemSettings(GUESS, {"max_turns": 3}, 1),
    ]
    assert len({r.group_id for r in rows}) == 4
    assert rows[0].group_id == GemSettings(GUESS, {}, 1, max_turns=9).group_id


def test_the_dataset_command_writes_a_weighted_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mix = ["--env", GUESS, "--env", json.dumps({"env_id": WORDLE, "env_kwargs": {"max_turns": 3}, "weight": 3})]
    out = tmp_path / "new" / "train.jsonl"
    dataset.main([str(out), *mix, "--size", "400", "--seed", "5", "--settings", '{"max_turns": 4}'])
    assert "400 rows" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    labels = [json.loads(r["label"]) for r in rows]
    assert [x["seed"] for x in labels] == list(range(5, 405))
    assert len({r["input"] for r in rows}) == 400
    share = sum(r["datasource"] == WORDLE for r in rows) / 400
    assert 0.65 < share < 0.85
    made = GemSettings().for_row(rows[0]["input"], rows[0]["label"])
    assert made.max_turns == 4
    assert made.env_kwargs == ({"max_turns": 3} if made.env_id == WORDLE else {})

    longer = list(dataset.rows([EnvChoice.parse(m) for m in mix[1::2]], 401, seed=5, settings={"max_turns": 4}))
    assert longer[:400] == rows

    held_out = tmp_path / "eval.jsonl"
    dataset.main([str(held_out), "--env", GUESS, "--size", "3", "--held-out"])
    assert json.loads(json.loads(held_out.read_text().splitlines()[0])["label"])["seed"] == VALIDATION_SEED


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--env", "game:GuessTheNumbr-v0"], "did you mean"),
        (["--env", GUESS, "--size", "0"], "size must be at least 1"),
        (["--env", GUESS, "--settings", '{"max_turn": 4}'], "max_turn"),
        (["--env", json.dumps({"env_id": GUESS, "weight": -1})], "weight"),
        (["--env", json.dumps({"env": GUESS})], "env_id"),
    ],
)
def test_the_dataset_command_refuses_what_an_episode_would(
    arguments: list[str], match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        dataset.main([str(tmp_path / "x.jsonl"), *arguments])
    assert match in capsys.readouterr().err


class TestLauncher:
    BASE = ("--actor.model_name_or_path", "m", "--vllm.num_engines", "1")

    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["launch"])
        for name in ("GEM_ENV_ID", "GEM_MAX_TURNS", "GEM_WRAPPERS"):
            monkeypatch.setenv(name, "")

    def test_openrlhf_checks_its_own_flags_and_ours_are_taken_out(self) -> None:
        from gem_openrlhf.launch import AGENT, arguments, worker_environment

        args = arguments(
            [*self.BASE, "--algo.advantage.estimator", "gem_rebn", "--gem.env_id", GUESS, "--gem.max_turns=3"]
        )
        assert args.algo.advantage.estimator == "gem_rebn"
        assert args.train.agent_func_path == str(AGENT)
        assert args.reward.remote_url == ["agent"]
        assert args.critic.model_name_or_path is None
        assert args.rollout.vllm_generate_batch_size == args.rollout.batch_size
        assert worker_environment()["GEM_MAX_TURNS"] == "3"

    @pytest.mark.parametrize("name", ["reinforce", "rloo"])
    def test_openrlhf_estimators_stay(self, name: str) -> None:
        from gem_openrlhf.launch import arguments

        args = arguments([*self.BASE, f"--algo.advantage.estimator={name}", "--rollout.n_samples_per_prompt", "2"])
        assert args.algo.advantage.estimator == name

    def test_turn_level_gae_gets_a_critic_and_group_estimators_need_groups(self) -> None:
        from gem_openrlhf.launch import arguments

        args = arguments([*self.BASE, "--algo.advantage.estimator=gem_gae"])
        assert args.algo.advantage.estimator == "gem_gae"
        assert args.critic.model_name_or_path == "m"
        with pytest.raises(AssertionError, match="n_samples_per_prompt > 1"):
            arguments([*self.BASE, "--algo.advantage.estimator", "gem_rloo_turn"])

    def test_wrong_flags_are_named(self) -> None:
        from gem_openrlhf.launch import arguments

        with pytest.raises(ValueError, match=r"--gem\.turns; there are --gem\.env_id"):
            arguments([*self.BASE, "--gem.turns", "3"])
        with pytest.raises(ValueError, match="did you mean"):
            arguments([*self.BASE, "--gem.env_id", "game:GuessTheNumbr-v0"])
        os.environ["GEM_ENV_ID"] = ""
        with pytest.raises(ValueError, match="no_std_norm"):
            arguments([*self.BASE, "--algo.advantage.estimator", "gem_rebn", "--algo.advantage.no_std_norm"])
        with pytest.raises(SystemExit):
            arguments([*self.BASE, "--algo.advantage.estimator", "gem_nothing"])

"""The matrix and its runner: what counts as a level, and that the documentation shows the last run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

cells = pytest.importorskip("cells", reason="the runner needs Python 3.11")


def row(level: str, outcome: str = "passed") -> dict[str, Any]:
    return {"test": f"tests/x.py::test_{level}", "level": level, "outcome": outcome, "reason": "because"}


@pytest.mark.parametrize(
    ("rows", "reached"),
    [
        ([], "-"),
        ([row("l1"), row("l2"), row("l4")], "L4"),
        ([row("l1"), row("l2", "failed"), row("l3")], "L1"),
        ([row("l1", "skipped"), row("l2")], "-"),
        ([row("l1"), row("l1", "failed"), row("l4")], "-"),
        ([row("l3")], "L3"),
    ],
)
def test_a_level_needs_all_tests_of_it_and_of_those_below(rows: list[dict[str, Any]], reached: str) -> None:
    assert cells.judge(rows)[0] == reached


def test_the_first_test_that_did_not_pass_is_named() -> None:
    assert cells.judge([row("l1"), row("l2", "skipped")])[2] == "skipped: x.py::test_l2: because"


def test_the_plugin_records_levels_failures_skips_and_files_that_do_not_import(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_plain(): pass\n"
        "@pytest.mark.l3\ndef test_steps(): assert 1 == 2, 'two'\n"
        "@pytest.mark.l2\ndef test_skipped(): pytest.skip('no reason')\n"
        "@pytest.mark.l4\ndef test_above(): pass\n",
        encoding="utf-8",
    )
    (tmp_path / "test_broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  l1:\n  l2:\n  l3:\n  l4:\n", encoding="utf-8")
    target = tmp_path / "levels.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "levels",
        "--continue-on-collection-errors",
        "-p",
        "no:xdist",
    ]
    subprocess.run(
        [*command, "-m", cells.marks("L3").replace("not browser and ", ""), str(tmp_path)],
        env={"PYTHONPATH": str(ROOT / "ci"), "GEM_LEVELS": str(target), "PATH": ""},
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    rows = {r["test"].rpartition("/")[2]: r for r in map(json.loads, target.read_text(encoding="utf-8").splitlines())}
    assert {k: (r["level"], r["outcome"]) for k, r in rows.items()} == {
        "test_broken.py": ("l1", "failed"),
        "test_some.py::test_plain": ("l1", "passed"),
        "test_some.py::test_steps": ("l3", "failed"),
        "test_some.py::test_skipped": ("l2", "skipped"),
    }
    assert "two" in rows["test_some.py::test_steps"]["reason"]
    assert "no_such_module_anywhere" in rows["test_broken.py"]["reason"]
    assert cells.judge(list(rows.values()))[0] == "-"


def test_a_command_past_its_limit_is_ended_with_all_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"(sleep 3; touch {marker}) & sleep 60"
    status, output = cells.run(["bash", "-c", script], tmp_path / "log", {"PATH": "/usr/bin:/bin"}, 1.0)
    assert status == 124
    assert "time limit" in output
    subprocess.run(["sleep", "3"], check=True)
    assert not marker.exists()


def test_the_matrix_is_sound() -> None:
    matrix = cells.read_matrix()
    assert len({c.name for c in matrix}) == len(matrix)
    for cell in matrix:
        for path in [*cell.tests, cell.example, *cell.pythonpath]:
            name = path.partition("=")[2].partition("::")[0] if path.startswith("-") else path
            assert not name or (ROOT / name).exists(), f"{cell.name} names {name}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('framework = "f"\nversion = "1"\nlevel = "L5"', "level 'L5'"),
        ('framework = "f"\nversion = "1"\nlevel = "L1"\ninstall = [["f==2"]]', "asks for 1 and installs f==2"),
    ],
)
def test_a_cell_that_contradicts_itself_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "matrix.toml"
    rest = "" if "install" in text else "\ninstall = []"
    path.write_text(f'[c]\n{text}{rest}\npython = "3.11"\ntests = []\nminutes = 1\n', encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        cells.read_matrix(path)


def test_a_changed_signature_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "signatures.json"
    record.write_text(json.dumps({"f": {"m:g": "(a)", "m:h": "(b)"}}), encoding="utf-8")
    monkeypatch.setattr(cells, "SIGNATURES", record)
    cell = cells.Cell("c", "f", "2", "3.11", "L1", [], [], 1)
    outcome = cells.Outcome("c", "f", "2", "3.11", "L1", "-", 0.0, signatures={"m:g": "(a, new)", "m:h": "(b)"})
    assert list(cells.changed_signatures(cell, outcome)) == ["m:g was (a), is (a, new)"]

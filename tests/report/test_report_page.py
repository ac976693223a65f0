"""The HTML file: self-contained, inert whatever the data, and the same for the same data."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from report_support import HOSTILE, Elements, embedded, make_hostile_run, make_run

from gem_core.report import build_payload, read_run, write_report
from gem_core.report.__main__ import main


def test_the_page_holds_the_data_and_is_the_same_every_time(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=4)
    path = write_report(run)
    assert path == run / "report.html"
    first = path.read_bytes()
    assert embedded(first.decode()) == build_payload([read_run(run)])
    assert write_report(str(run)).read_bytes() == first
    assert [p.name for p in run.iterdir() if p.suffix == ".part"] == []


def test_plain_data_are_the_same_data(tmp_path: Path) -> None:
    run = make_hostile_run(tmp_path / "a")
    plain, packed = (write_report(run, tmp_path / f"{c}.html", compress=c).read_text() for c in (False, True))
    assert embedded(plain) == embedded(packed)


def test_several_runs_go_beside_the_first_one(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, points=2, advantage=name) for name in ("rebn", "grpo")]
    assert write_report(runs) == tmp_path / "report.html"
    assert embedded((tmp_path / "report.html").read_text())["groups"][1]["label"] == "advantage=grpo"


@pytest.mark.parametrize("compress", [True, False])
def test_hostile_texts_stay_texts(tmp_path: Path, compress: bool) -> None:
    page = write_report(make_hostile_run(tmp_path / "a"), compress=compress).read_text(encoding="utf-8")
    found, clean = Elements.of(page), Elements.of(write_report(make_run(tmp_path / "b", points=1)).read_text())
    assert found.tags == clean.tags
    assert not any(name.startswith("on") for name, _ in found.attributes)
    assert "\x00" not in page
    (texts,) = ([t["obs"] for e in embedded(page)["episodes"][:-1] for t in e["turns"]],)
    assert texts == [h.encode("utf-8", "replace").decode() for h in HOSTILE]


def test_a_hostile_title_stays_a_title(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=1)
    for title in HOSTILE:
        found = Elements.of(write_report(run, tmp_path / "t.html", title=title).read_text(encoding="utf-8"))
        assert found.tags.count("title") == 1
        assert found.tags.count("script") == 2


def test_only_the_templates_script_may_run_and_nothing_is_loaded(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path / "a", points=1)).read_text()
    found = Elements.of(page)
    policy = next(v for n, v in found.attributes if n == "content" and v and "default-src" in v)
    script = next(text for attributes, text in found.scripts if not attributes)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not any(name == "src" or (name == "href" and not str(v).startswith("#")) for name, v in found.attributes)
    template = files("gem_core.report").joinpath("template")
    for name in (
        "report.css",
        "report.html",
        "dom.js",
        "app.js",
        "browser.js",
        "charts.js",
        "episode.js",
        "learning.js",
    ):
        text = template.joinpath(name).read_text()
        assert "innerHTML" not in text
        assert "@import" not in text
        assert "url(" not in text


def test_no_runs_is_an_error_by_name() -> None:
    with pytest.raises(ValueError, match="at least one run folder"):
        write_report([])


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=1)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_report(run, tmp_path / "folder.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "folder.html"]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "a", points=3)
    out = tmp_path / "o.html"
    assert main([str(run), "-o", str(out), "--title", "Mine", "--max-episodes", "5", "--plain"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    data = embedded(out.read_text())
    assert data["title"] == "Mine"
    assert len(data["episodes"]) <= 5
    assert main([str(tmp_path / "absent")]) == 1
    assert "no run folder at" in capsys.readouterr().err
    assert main([str(run), "--max-episodes", "0"]) == 1
    assert "must be positive" in capsys.readouterr().err


def test_it_runs_as_a_module_and_imports_nothing_heavy(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=1)
    code = (
        "import sys, runpy; sys.argv = ['report', sys.argv[1]]\n"
        "try: runpy.run_module('gem_core.report', run_name='__main__')\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "print(sorted({'numpy', 'torch', 'transformers', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(run / "report.html"), "[]"]

"""The container backend against an engine's stand-in; no real engine is needed (or used)."""

from __future__ import annotations

import os
import pathlib
import sys
import time

import pytest

from gem_core.sandbox import Limits, SandboxError
from gem_core.sandbox.container import ContainerSandbox

#: Runs the words after the image in a folder, as an engine would in a container; "kill" ends what has the name.
ENGINE = r"""#!{python}
import os, shutil, signal, subprocess, sys, tempfile
here = os.path.dirname(os.path.abspath(sys.argv[0]))
if sys.argv[1] == "kill":
    os.killpg(int(open(os.path.join(here, sys.argv[2])).read()), signal.SIGKILL)
    sys.exit(0)
words = sys.argv[2:]
name = words[words.index("--name") + 1]
code = words[words.index("--volume") + 1].split(":")[0]
if "missing" in words:
    print("Unable to find image 'missing'", file=sys.stderr)
    sys.exit(125)
rest = words[words.index("image") + 1:]
work = tempfile.mkdtemp(dir=here)
rest = [w.replace("/tmp/", work + "/").replace("/code", code).replace("python3", sys.executable) for w in rest]
process = subprocess.Popen(rest, cwd=work, start_new_session=True)
open(os.path.join(here, name), "w").write(str(process.pid))
status = process.wait()
sys.exit(128 - status if status < 0 else status)
"""


@pytest.fixture
def engine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> ContainerSandbox:
    path = tmp_path / "podman"
    path.write_text(ENGINE.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return ContainerSandbox("image", engine="podman")


def test_command_line_takes_everything_away(engine: ContainerSandbox) -> None:
    limits = Limits(timeout=3, memory_bytes=1 << 28, processes=20, disk_bytes=1 << 20)
    command = engine.command("name", "/folder", ["python3", "/code/main.py"], {"A": "b"}, limits)
    text = " ".join(command)
    assert command[:2] == ["podman", "run"]
    for part in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--user 65534:65534",
        "--memory 268435456b --memory-swap 268435456b",
        "--pids-limit 20",
        "--ulimit cpu=5:6",
        "--tmpfs /tmp:rw,nosuid,nodev,size=1048576,mode=1777",
        "--volume /folder:/code:ro",
        "--env A=b",
        "--rm",
        "--init",
    ):
        assert part in text
    assert command[-3:] == ["sh", "python3", "/code/main.py"]


def test_same_results_as_the_other_backend(engine: ContainerSandbox) -> None:
    result = engine.run("import sys; print(input(), sys.argv[1:])", stdin="in\n", arguments=["a"])
    assert (result.stdout, result.verdict, result.exit_code) == ("in ['a']\n", "ok", 0)
    assert engine.run("1/0").verdict == "error"
    assert engine.run("import os; os.abort()").exit_code == -6
    assert engine.run("print(open('d/f').read())", files={"d/f": "x"}).stdout == "x\n"
    assert engine.run_command(["sh", "-c", "exit 4"]).exit_code == 4
    flood = engine.run("print('a' * 10000)", output_bytes=100)
    assert flood.stdout_omitted == 9901
    assert engine.describe()["level"] == "container"


def test_limits_end_the_container(engine: ContainerSandbox) -> None:
    started = time.monotonic()
    result = engine.run("print('early', flush=True)\nimport time\ntime.sleep(30)", timeout=0.7)
    assert time.monotonic() - started < 5
    assert (result.verdict, result.stdout) == ("timeout", "early\n")
    flood = engine.run("while True: print('x' * 10000)", flood_bytes=100_000, timeout=20)
    assert flood.verdict == "output"


def test_failures_of_the_engine_are_errors(engine: ContainerSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.image = "missing"
    with pytest.raises(SandboxError, match="Unable to find image"):
        engine.run("1")
    with pytest.raises(ValueError, match="engine must be"):
        ContainerSandbox(engine="lxc")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="no container engine is installed"):
        ContainerSandbox()

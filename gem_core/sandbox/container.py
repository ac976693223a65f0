"""The sandbox's interface on Docker or Podman: one container a run."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.sandbox.inside.slot import Kept
from gem_core.sandbox.limits import Limits, RunResult, Verdict, join_output
from gem_core.sandbox.requests import blobs_of, command_header, limits_with
from gem_core.sandbox.template import SandboxError

ENGINES = ("podman", "docker")
#: Seconds that starting and stopping a container may add to a run's limit.
_OVERHEAD_S = 10.0


class ContainerSandbox:
    """Runs each program in a container of its own: no network, read-only root, limits of the engine.

    Slower than :class:`~gem_core.sandbox.Sandbox` (a container a run), for hosts whose kernel does not allow
    namespaces to users but runs an engine, and for programs that need an image of their own.

    Args:
        image: Image with ``python3`` and ``sh``.
        engine: ``podman`` or ``docker``; None = the first that is there.
        limits: Defaults of every run.

    Raises:
        SandboxError: no engine is installed.
    """

    def __init__(
        self, image: str = "python:3.12-slim", engine: str | None = None, limits: Limits | None = None
    ) -> None:
        if engine is not None and engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)} or None, got {engine!r}")
        found = next((name for name in ([engine] if engine else ENGINES) if shutil.which(name)), None)
        if found is None:
            raise SandboxError(f"no container engine is installed (looked for {engine or ' and '.join(ENGINES)})")
        self.engine, self.image = found, image
        self.limits = limits or Limits()

    def run(
        self,
        code: str,
        *,
        stdin: str | bytes = "",
        arguments: Sequence[str] = (),
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits | None = None,
        **changed: Any,
    ) -> RunResult:
        """As :meth:`gem_core.sandbox.Sandbox.run`."""
        words = ["python3", "/code/main.py", *arguments]
        return self._run(words, code, stdin, files, {}, limits_with(limits or self.limits, changed))

    def run_command(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        **changed: Any,
    ) -> RunResult:
        """As :meth:`gem_core.sandbox.Sandbox.run_command`."""
        header = command_header(argv, environment)
        chosen = limits_with(limits or self.limits, changed)
        return self._run(header["argv"], "", stdin, files, header["environment"], chosen)

    def describe(self) -> dict[str, Any]:
        """``level`` (``"container"``), ``engine``, ``image``, ``lacks``."""
        return {"level": "container", "engine": self.engine, "image": self.image, "lacks": []}

    def command(
        self, name: str, code_folder: str, words: Sequence[str], environment: Mapping[str, str], limits: Limits
    ) -> list[str]:
        """The engine's command line of one run."""
        memory = f"{limits.memory_bytes}b"
        cpu = limits.cpu_s or int(limits.timeout) + 2
        options = [
            *("--name", name, "--rm", "--interactive", "--init", "--network", "none", "--read-only"),
            *("--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes)),
            *("--ulimit", f"cpu={cpu}:{cpu + 1}", "--ulimit", f"fsize={limits.file_bytes}", "--ulimit", "core=0"),
            *("--ulimit", f"nofile={limits.open_files}"),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.disk_bytes},mode=1777"),
            *("--volume", f"{code_folder}:/code:ro", "--workdir", "/tmp", "--env", "HOME=/tmp"),
        ]
        for key, value in environment.items():
            options += ["--env", f"{key}={value}"]
        # What lies beside the code is copied, as the folder itself cannot be written to.
        start = 'cp -R /code/files/. /tmp/ 2>/dev/null; exec "$@"'
        return [self.engine, "run", *options, self.image, "sh", "-c", start, "sh", *words]

    # -- inside -----------------------------------------------------------------------------------------------

    def _run(
        self,
        words: Sequence[str],
        code: str,
        stdin: str | bytes,
        files: Mapping[str, str | bytes] | None,
        environment: Mapping[str, str],
        limits: Limits,
    ) -> RunResult:
        blobs, names = blobs_of(code, stdin, files)
        name = f"gem-sandbox-{secrets.token_hex(8)}"
        with tempfile.TemporaryDirectory(prefix="gem-sandbox-") as folder:
            os.chmod(folder, 0o755)
            _write(folder, "main.py", blobs[0])
            for file_name, content in zip(names, blobs[2:], strict=True):
                _write(f"{folder}/files", file_name, content)
            return self._follow(self.command(name, folder, words, environment, limits), name, blobs[1], limits)

    def _follow(self, command: list[str], name: str, stdin: bytes, limits: Limits) -> RunResult:
        started = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        kept = [Kept(limits.output_bytes), Kept(limits.output_bytes)]
        threads = [
            threading.Thread(target=_drain, args=(process.stdout, kept[0]), daemon=True),
            threading.Thread(target=_drain, args=(process.stderr, kept[1]), daemon=True),
            threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True),
        ]
        for thread in threads:
            thread.start()
        verdict: Verdict | None = None
        detail = ""
        deadline = started + limits.timeout
        while process.poll() is None and verdict is None:
            if time.monotonic() >= deadline:
                verdict, detail = "timeout", f"stopped after {limits.timeout:g} s"
            elif sum(k.total for k in kept) > limits.flood_bytes:
                verdict, detail = "output", f"more than {limits.flood_bytes} bytes were written"
            time.sleep(0.01)
        if verdict is not None:
            self._kill(name, process)
        for thread in threads[:2]:
            thread.join(_OVERHEAD_S)
        code = process.wait()
        if code == 125 and verdict is None:  # the engine's own failure; the program did not run
            raise SandboxError(f"{self.engine}: {join_output(*kept[1].parts(), kept[1].total)[0].strip()[-500:]}")
        if code > 128 and verdict is None:
            code = 128 - code
        if verdict is None:
            verdict = "ok" if code == 0 else "memory" if code == -signal.SIGKILL else "error"
        (stdout, out_omitted), (stderr, err_omitted) = (join_output(*k.parts(), k.total) for k in kept)
        wall = time.monotonic() - started
        return RunResult(stdout, stderr, code, verdict, detail, wall, 0.0, out_omitted, err_omitted)

    def _kill(self, name: str, process: subprocess.Popen[bytes]) -> None:
        try:
            subprocess.run([self.engine, "kill", name], capture_output=True, timeout=_OVERHEAD_S, check=False)
            process.wait(timeout=_OVERHEAD_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _write(folder: str, name: str, content: bytes) -> None:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)


def _drain(stream: Any, kept: Kept) -> None:
    while data := stream.read1(1 << 16):
        kept.add(data)


def _feed(stream: Any, data: bytes) -> None:
    try:
        stream.write(data)
        stream.close()
    except OSError:  # the program does not read
        pass

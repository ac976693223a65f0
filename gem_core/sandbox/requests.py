"""What is sent to a slot for one run, and the result made of its reply."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_core.sandbox.limits import Limits, RunResult, join_output
from gem_core.sandbox.template import Slot

#: Seconds after its limit at which a run whose supervisor does not answer is given up.
BACKSTOP_S = 3.0


def limits_with(limits: Limits, changed: dict[str, Any]) -> Limits:
    """``limits`` with some of them changed; an unknown name is a ValueError."""
    try:
        return replace(limits, **changed) if changed else limits
    except TypeError:
        known = ", ".join(Limits.__dataclass_fields__)
        unknown = ", ".join(sorted(set(changed) - set(Limits.__dataclass_fields__)))
        raise ValueError(f"there is no limit called {unknown} (there are: {known})") from None


def command_header(argv: Sequence[str], environment: Mapping[str, str] | None) -> dict[str, Any]:
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise ValueError(f"argv must be a non-empty sequence of strings, got {argv!r}")
    return {"argv": list(argv), "environment": dict(environment or {})}


def blobs_of(code: str, stdin: str | bytes, files: Mapping[str, str | bytes] | None) -> tuple[list[bytes], list[str]]:
    if not isinstance(code, str):
        raise ValueError(f"code must be a string, got {type(code).__name__}")
    names = list(files or {})
    for name in names:
        if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ValueError(f"a file's name must be relative and without '..', got {name!r}")
    contents = [encode(content) for content in (files or {}).values()]
    return [code.encode("utf-8", "surrogatepass"), encode(stdin), *contents], names


def encode(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def numbers(limits: Limits) -> dict[str, Any]:
    numbers = {name: getattr(limits, name) for name in Limits.__dataclass_fields__}
    if numbers["cpu_s"] is None:
        numbers["cpu_s"] = int(limits.timeout) + 2
    return numbers


def ask(slot: Slot, header: dict[str, Any], blobs: list[bytes], timeout: float) -> RunResult | None:
    """The result of one run; None where the slot is lost."""
    try:
        reply, parts = slot.ask(header, blobs, time.monotonic() + timeout + BACKSTOP_S)
    except (OSError, EOFError):  # TimeoutError too
        return None
    slot.retired = bool(reply.get("retire"))
    stdout, stdout_omitted = join_output(parts[0], parts[1], reply.get("stdout_total", 0))
    stderr, stderr_omitted = join_output(parts[2], parts[3], reply.get("stderr_total", 0))
    return RunResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=reply["exit_code"],
        verdict=reply["verdict"],
        detail=reply["detail"],
        wall_s=reply.get("wall_s", 0.0),
        cpu_s=reply.get("cpu_s", 0.0),
        stdout_omitted=stdout_omitted,
        stderr_omitted=stderr_omitted,
    )


def with_value(result: RunResult, mark: str) -> RunResult:
    before, found, text = result.stdout.rpartition(f"\n{mark}")
    if not found:
        return result
    try:
        value = json.loads(text)
    except ValueError:  # cut where output was left out
        return result
    return replace(result, stdout=before, returned=True, value=value)


def lost(timeout: float) -> RunResult:
    return RunResult("", "", -9, "killed", "the supervisor of the run died", timeout, 0.0)

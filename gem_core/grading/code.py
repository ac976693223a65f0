"""Grades programs by running them on tests, in the sandbox.

Tests come as the datasets have them: ``{"inputs": [...], "outputs": [...]}`` with standard input and output (a
string or a list of lines each), and ``"fn_name"`` as well where a function is to be called: an input is then the list
of its arguments, or text with one JSON value a line, as in APPS and TACO; an output is the value, or a list that
holds it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from gem_core.sandbox import RunResult, Sandbox, default_sandbox

Verdict = Literal[
    "accepted", "wrong_answer", "time_limit", "memory_limit", "output_limit", "runtime_error", "no_code", "skipped"
]
#: Verdicts of single tests, the one that a program gets first: that of its first test that failed otherwise.
_BY_RUN: dict[str, Verdict] = {
    "timeout": "time_limit",
    "memory": "memory_limit",
    "output": "output_limit",
    "error": "runtime_error",
    "killed": "runtime_error",
}
#: Tests a program may run into its time limit with; the others are then skipped, as it hangs again and again.
MOST_TIMEOUTS = 2
#: Output of one test that is looked at.
OUTPUT_BYTES = 16 << 20

_FENCE = re.compile(
    r"(?P<fence>`{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*\n(?P<code>.*?)(?:(?<=\n)[ \t]*(?P=fence)(?!`)|\Z)", re.DOTALL
)
_PYTHON = ("python", "python3", "py", "py3", "pypy3")
_TAG = re.compile(r"<python>(.*?)</python>", re.DOTALL)


@dataclass(frozen=True)
class CodeVerdict:
    """What became of a program."""

    #: ``accepted``, or that of the first test that was not passed.
    verdict: Verdict
    passed: int
    total: int
    #: One dict a test, in order: ``verdict``, ``wall_s``, ``cpu_s``, and for a failed one ``expected``, ``got`` and
    #: ``error`` (each shortened).
    details: list[dict[str, Any]] = field(default_factory=list)


def extract_code(text: str) -> str | None:
    """The program in a model's answer: the last fenced Python block, else the last unmarked one, else ``<python>``.

    A block that is not closed reaches to the end of the text. None where there is no block.
    """
    blocks = [(m["language"].lower(), m["code"]) for m in _FENCE.finditer(text)]
    for languages in (_PYTHON, ("",)):
        found = [code for language, code in blocks if language in languages and code.strip()]
        if found:
            return found[-1].replace("\r\n", "\n").strip("\n")
    tagged = [code for code in _TAG.findall(text) if code.strip()]
    return tagged[-1].replace("\r\n", "\n").strip("\n") if tagged else None


def grade_code(
    program: str | None,
    tests: Mapping[str, Any],
    *,
    timeout: float = 10.0,
    memory_mb: int = 1024,
    tolerance: float | None = None,
    stop_early: bool = False,
    sandbox: Sandbox | None = None,
) -> CodeVerdict:
    """Runs ``program`` on every test.

    Args:
        program: Python source; None or blank = ``no_code``.
        tests: See the module. Two keys may be there besides: ``"tolerance"`` (as the argument) and ``"checker"``
            (``"exact"``: only trailing white space may differ).
        timeout: Seconds that one test may take.
        memory_mb: Memory that one test may take.
        tolerance: Numbers that differ by at most this, absolutely or relatively, are equal; None = as the tests say,
            and otherwise text is compared (token by token, so white space does not matter).
        stop_early: Skip what is left after the first test that is not passed.
        sandbox: Instead of the process's own.

    Raises:
        ValueError: tests without ``inputs`` and ``outputs`` of the same length.
    """
    inputs, outputs = list(tests.get("inputs") or ()), list(tests.get("outputs") or ())
    if not inputs or len(inputs) != len(outputs):
        raise ValueError(
            f"tests need inputs and outputs of the same length, at least one, got {len(inputs)} and {len(outputs)}"
        )
    if program is None or not program.strip():
        return CodeVerdict("no_code", 0, len(inputs))
    if tolerance is None:
        tolerance = tests.get("tolerance")
    box = sandbox if sandbox is not None else default_sandbox()
    limits: dict[str, Any] = {"timeout": timeout, "memory_bytes": memory_mb << 20, "output_bytes": OUTPUT_BYTES}
    if tests.get("fn_name"):
        run = _function_test(program, str(tests["fn_name"]), tolerance)
    else:
        run = _text_test(program, str(tests.get("checker", "tokens")), tolerance)
    details = _run_all(lambda i: run(box, inputs[i], outputs[i], limits), len(inputs), box.max_workers, stop_early)
    failed = [d["verdict"] for d in details if d["verdict"] not in ("accepted", "skipped")]
    passed = sum(d["verdict"] == "accepted" for d in details)
    return CodeVerdict(failed[0] if failed else "accepted", passed, len(inputs), details)


def _run_all(run: Callable[[int], dict[str, Any]], count: int, workers: int, stop_early: bool) -> list[dict[str, Any]]:
    """Runs all tests side by side; those after the deciding one are skipped, whatever the order they ended in."""
    skipped: dict[str, Any] = {"verdict": "skipped"}
    if stop_early or count == 1:  # one after another: what would run beside a failing one is work for nothing
        workers = 1
    details: list[dict[str, Any]] = []
    with ThreadPoolExecutor(workers, thread_name_prefix="tests") if workers > 1 else _Here() as threads:
        for start in range(0, count, workers):
            details += threads.map(run, range(start, min(start + workers, count)))
            timeouts = sum(d["verdict"] == "time_limit" for d in details)
            if timeouts >= MOST_TIMEOUTS or (stop_early and details[-1]["verdict"] != "accepted"):
                break
    return details + [dict(skipped) for _ in range(count - len(details))]


class _Here:
    """An executor that runs in the calling thread."""

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def map(self, function: Callable[[int], dict[str, Any]], items: range) -> list[dict[str, Any]]:
        return [function(i) for i in items]


_Test = Callable[[Sandbox, Any, Any, dict[str, Any]], dict[str, Any]]


def _text_test(program: str, checker: str, tolerance: float | None) -> _Test:
    if checker not in ("tokens", "exact"):
        raise ValueError(f"checker must be 'tokens' or 'exact', got {checker!r}")

    def run(box: Sandbox, given: Any, expected: Any, limits: dict[str, Any]) -> dict[str, Any]:
        result = box.run(program, stdin=_ending_in_newline(as_text(given)), supply_imports=True, **limits)
        if not result.ok:
            return _failure(result)
        if same_output(result.stdout, as_text(expected), tolerance, exact=checker == "exact"):
            return _timed(result, {"verdict": "accepted"})
        wrong = {"verdict": "wrong_answer", "expected": _short(as_text(expected)), "got": _short(result.stdout)}
        return _timed(result, wrong)

    return run


def as_text(value: Any) -> str:
    """Standard input or output of a test: a string as it is, a list as its lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(as_text(v) if isinstance(v, (str, list, tuple)) else str(v) for v in value)
    return str(value)


def _ending_in_newline(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def same_output(got: str, expected: str, tolerance: float | None = None, exact: bool = False) -> bool:
    """Whether two outputs are the same: token by token, or (``exact``) but for trailing white space."""
    if exact and tolerance is None:
        return [line.rstrip() for line in got.rstrip().split("\n")] == [
            line.rstrip() for line in expected.rstrip().split("\n")
        ]
    ours, theirs = got.split(), expected.split()
    if ours == theirs:
        return True
    if tolerance is None or len(ours) != len(theirs):
        return False
    return all(a == b or _close(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def _close(a: str, b: str, tolerance: float) -> bool:
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)):
        return False
    x, y = float(a), float(b)
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= tolerance * max(1.0, abs(y))


# -- function calls ---------------------------------------------------------------------------------------------------


def _function_test(program: str, name: str, tolerance: float | None) -> _Test:
    def run(box: Sandbox, given: Any, expected: Any, limits: dict[str, Any]) -> dict[str, Any]:
        result = box.run(program, call=(name, _arguments(given)), supply_imports=True, **limits)
        if not result.ok:
            return _failure(result)
        if not result.returned:
            error = "the program ended before its function returned"
            return _timed(result, {"verdict": "runtime_error", "error": error})
        wanted = _parsed(expected)
        # Datasets wrap the value in a list, or do not.
        options = [wanted, *(wanted if isinstance(wanted, list) and len(wanted) == 1 else [])]
        if any(same_value(result.value, option, tolerance) for option in options):
            return _timed(result, {"verdict": "accepted"})
        wrong = {"verdict": "wrong_answer", "expected": _short(repr(wanted)), "got": _short(repr(result.value))}
        return _timed(result, wrong)

    return run


def _arguments(given: Any) -> list[Any]:
    """The arguments of one call: a list holds them; text has one JSON value a line."""
    if isinstance(given, str):
        return [_parsed(line) for line in given.split("\n") if line.strip()]
    if isinstance(given, (list, tuple)):
        return list(given)
    return [given]


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def same_value(got: Any, expected: Any, tolerance: float | None = None) -> bool:
    """Equality of JSON values; tuples are lists, and floats may differ by rounding (1e-9 unless told otherwise)."""
    if isinstance(got, bool) or isinstance(expected, bool):
        return got is expected
    if isinstance(got, (int, float)) and isinstance(expected, (int, float)):
        if isinstance(got, int) and isinstance(expected, int):
            return got == expected or (tolerance is not None and abs(got - expected) <= tolerance)
        return got == expected or abs(got - expected) <= (tolerance or 1e-9) * max(1.0, abs(expected))
    if isinstance(got, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(
            same_value(a, b, tolerance) for a, b in zip(got, expected, strict=True)
        )
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        return set(got) == set(expected) and all(same_value(got[k], expected[k], tolerance) for k in got)
    return bool(got == expected)


# -- what is told of a test -------------------------------------------------------------------------------------------


def _failure(result: RunResult) -> dict[str, Any]:
    lines: Sequence[str] = result.stderr.strip().splitlines()
    error = lines[-1] if lines else result.detail or f"exit code {result.exit_code}"
    return _timed(result, {"verdict": _BY_RUN[result.verdict], "error": _short(error)})


def _timed(result: RunResult, detail: dict[str, Any]) -> dict[str, Any]:
    return {**detail, "wall_s": result.wall_s, "cpu_s": result.cpu_s}


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"

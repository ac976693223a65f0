"""A pytest plugin (``-p levels``) that writes one JSON line a finished test: its level, outcome and first error line.

A line is written as soon as the test is over, so that a run that is cut off still tells how far it came.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

LEVELS = ("l1", "l2", "l3", "l4")


def level_of(keywords: Any) -> str:
    """The highest level that marks a test; l1 where none does."""
    return max((level for level in LEVELS if level in keywords), default="l1")


def pytest_runtest_logreport(report: Any) -> None:
    if (target := os.environ.get("GEM_LEVELS")) and (report.when == "call" or report.outcome != "passed"):
        reason = ""
        if report.outcome == "skipped":
            reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash is not None else str(report.longrepr)
        _write(target, report.nodeid, level_of(report.keywords), report.outcome, reason)


def pytest_collectreport(report: Any) -> None:
    if (target := os.environ.get("GEM_LEVELS")) and report.outcome != "passed":
        _write(target, report.nodeid, "l1", report.outcome, str(report.longrepr).strip().splitlines()[-1])


def _write(target: str, test: str, level: str, outcome: str, reason: str) -> None:
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    row = {"test": test, "level": level, "outcome": outcome, "reason": first[:300]}
    with Path(target).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")

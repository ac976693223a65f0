"""One self-contained HTML page of one or several run folders.

    from gem_core.report import write_report
    write_report("runs/trl_rebn")                                   # runs/trl_rebn/report.html
    write_report(["runs/rebn", "runs/grpo"], out="comparison.html")

or ``python -m gem_core.report RUN [RUN ...] [-o FILE]``. The page needs no network and no other file: learning curves
(a band over the runs that differ only in their seed), results of each environment, the configurations side by side,
and the recorded episodes turn by turn.
"""

from __future__ import annotations

from gem_core.report.page import build_page, write_report
from gem_core.report.payload import build_payload
from gem_core.report.runs import Run, read_run

__all__ = ["Run", "build_page", "build_payload", "read_run", "write_report"]

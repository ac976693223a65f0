"""Tables of results as Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gem_core.evaluation.statistics import Estimate

if TYPE_CHECKING:
    from gem_core.evaluation.compare import Comparison
    from gem_core.evaluation.results import EvalResult

#: Equal to another figure (``avg@n``): in the JSON, not in the tables.
HIDDEN = ("pass@1",)
_SHARES = ("success", "pass@", "avg@", "stop/")
_LATEX = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row."""

    header: list[str]
    rows: list[list[str]]
    #: Rows from here on are set apart (an average).
    rule_before: int | None = None

    def markdown(self) -> str:
        lines = [self.header, ["---"] + ["---:"] * (len(self.header) - 1), *self.rows]
        return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines)

    def latex(self) -> str:
        out = [rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}", r"\toprule"]
        out += [_row(self.header), r"\midrule"]
        for i, row in enumerate(self.rows):
            if i == self.rule_before:
                out.append(r"\midrule")
            out.append(_row(row))
        return "\n".join([*out, r"\bottomrule", r"\end{tabular}"])


def result_table(result: EvalResult, metrics: Sequence[str] | None = None) -> Table:
    """One row an environment and their average; ``metrics`` None = all but the stop reasons."""
    known = list(dict.fromkeys(m for e in result.envs for m in e.metrics))
    names = [m for m in known if not m.startswith("stop/") and m not in HIDDEN] if metrics is None else list(metrics)
    if unknown := [m for m in names if m not in known]:
        raise ValueError(f"no metric is called {unknown[0]!r}; there are {', '.join(known)}")
    header = ["environment", "tasks", "episodes", "failed", *names]
    rows = [
        [e.env_id, str(e.tasks), str(e.episodes), str(e.failed), *(show(m, e.metrics.get(m)) for m in names)]
        for e in result.envs
    ]
    if not result.average:
        return Table(header, rows)
    totals = [str(sum(getattr(e, n) for e in result.envs)) for n in ("tasks", "episodes", "failed")]
    rows.append(["average", *totals, *(show(m, result.average.get(m)) for m in names)])
    return Table(header, rows, len(rows) - 1)


def comparison_table(comparison: Comparison) -> Table:
    """One row for each environment and metric, and the average over environments."""
    header = ["environment", "metric", "pairs", comparison.name_a, comparison.name_b, "difference", "p"]
    rows = [
        [
            d.env_id,
            d.metric,
            str(d.pairs),
            number(d.metric, d.a),
            number(d.metric, d.b),
            show(d.metric, d.difference),
            f"{d.p:.2g}" if d.p >= 1e-3 else f"{d.p:.0e}",
        ]
        for d in comparison.differences
    ]
    first = next((i for i, d in enumerate(comparison.differences) if d.env_id == "average"), None)
    return Table(header, rows, first)


def show(metric: str, estimate: Estimate | None) -> str:
    """``0.412 [0.380, 0.444]``."""
    if estimate is None or math.isnan(estimate.value):
        return "-"
    text = number(metric, estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{number(metric, estimate.low)}, {number(metric, estimate.high)}]"


def number(metric: str, value: float) -> str:
    """Shares and returns to three places, counts to one."""
    places = 3 if metric.startswith(_SHARES) or metric == "return" else 1
    return f"{value:.{places}f}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in cells) + r" \\"

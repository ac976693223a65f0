"""Results on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_core.evaluation import Comparison, EvalResult
    from gem_core.evaluation.tables import Table as TextTable


def print_result(result: EvalResult) -> None:
    """One line a metric, one column an environment; many environments the other way round."""
    from rich.console import Console

    from gem_core.evaluation.tables import HIDDEN, Table, result_table, show

    console = Console()
    title = f"{result.name}, {result.intervals.confidence:.0%} bootstrap intervals over tasks"
    if len(result.envs) > 3:
        _print(result_table(result, ["success", "return"] if _has_success(result) else ["return"]), title)
        return
    columns = [(e.env_id, e.metrics) for e in result.envs]
    if result.average:
        columns.append(("average", result.average))
    names = [m for m in dict.fromkeys(m for _, metrics in columns for m in metrics) if m not in HIDDEN]
    rows = [[n, *(show(n, metrics.get(n)) for _, metrics in columns)] for n in names]
    counts = [
        [label, *(str(getattr(e, name)) for e in result.envs), *([""] if result.average else [])]
        for label, name in (("tasks", "tasks"), ("episodes", "episodes"), ("failed", "failed"))
    ]
    _print(Table(["", *(name for name, _ in columns)], counts + rows), title)
    if result.failed:
        console.print(f"[yellow]{result.failed} failed episodes are in no mean[/yellow]")


def print_comparison(comparison: Comparison) -> None:
    from rich.console import Console

    from gem_core.evaluation.tables import comparison_table

    _print(comparison_table(comparison), f"{comparison.name_a} minus {comparison.name_b}, paired")
    for note in comparison.notes:
        Console().print(note, markup=False)


def _has_success(result: EvalResult) -> bool:
    return all("success" in e.metrics for e in result.envs)


def _print(text: TextTable, title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(text.header):
        table.add_column(Text(name), justify="left" if i == 0 else "right")
    for i, row in enumerate(text.rows):
        if i == text.rule_before:
            table.add_section()
        table.add_row(*map(Text, row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(Text(title, style="bold"))
    console.print(table)

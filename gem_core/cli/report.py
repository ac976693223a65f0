"""``gem report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of training runs or evaluations.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="[report.html in the folder; of several runs beside it].")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    max_episodes: Annotated[int, typer.Option(help="Over all runs; more are thinned out evenly.")] = 5000,
    plain: Annotated[bool, typer.Option("--plain", help="Uncompressed, for browsers from before 2023.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Writes one self-contained HTML page: curves, results, and every recorded episode turn by turn.

    Examples:

        gem report runs/trl_rebn

        gem report runs/rebn runs/grpo -o comparison.html
    """
    from gem_core.report import write_report

    path = write_report(list(map(str, runs)), out, title=title, max_episodes=max_episodes, compress=not plain)
    print(path)
    if open_it:
        import webbrowser

        webbrowser.open(Path(path).resolve().as_uri())

"""``python -m gem_core.report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gem_core.report.page import write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the report and prints its path; returns 1 where a run folder cannot be read, saying why."""
    p = argparse.ArgumentParser(
        prog="python -m gem_core.report",
        description="Write one self-contained HTML page of training runs.",
        epilog="Runs whose configurations differ only in the seed are drawn as one curve with a band.",
    )
    p.add_argument("runs", nargs="+", metavar="RUN", help="a run folder (run.json, metrics.jsonl, episodes.jsonl)")
    p.add_argument("-o", "--out", metavar="FILE", help="default: report.html in the run folder (several: beside it)")
    p.add_argument("--title", help="heading of the page")
    p.add_argument("--max-episodes", type=int, default=5000, help="over all runs; more are thinned out evenly (5000)")
    p.add_argument("--plain", action="store_true", help="uncompressed data, for browsers from before 2023")
    cli = p.parse_args(argv)
    try:
        path = write_report(cli.runs, cli.out, title=cli.title, max_episodes=cli.max_episodes, compress=not cli.plain)
    except (OSError, ValueError) as e:
        print(f"gem report: {e}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line's root: commands, errors, exit codes."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Annotated

import typer

from gem_core.cli import FAILED, INTERRUPTED, MISSING_PACKAGE, USAGE, bench, doctor, evaluation, listing, play, report
from gem_core.cli import rollout as rollout_command

#: Newer versions of typer hold a click of their own.
_CLICK_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="gem",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Environments for LLM agents: look, play, evaluate, collect.",
    epilog="`gem --install-completion` sets up the shell's completion. Exit codes: 0 done, 1 failed, 2 bad command "
    "line or value, 3 a package is missing, 130 interrupted.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import gem_core

        print(f"gem-adapters {gem_core.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and the log (also GEM_DEBUG=1); works after any command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Environments for LLM agents: look, play, evaluate, collect."""


app.command("list")(listing.list_command)
app.command("info")(listing.info_command)
app.command("play")(play.play_command)
app.command("eval")(evaluation.eval_command)
app.command("compare")(evaluation.compare_command)
app.command("rollout")(rollout_command.rollout_command)
app.command("report")(report.report_command)
app.command("bench")(bench.bench_command)
app.command("doctor")(doctor.doctor_command)


def run(arguments: list[str], debug: bool) -> int:
    """See :func:`gem_core.cli.main`."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO if debug else logging.ERROR)
    logging.basicConfig(handlers=[handler], level=handler.level, format="%(levelname)s %(name)s: %(message)s")
    command = typer.main.get_command(app)
    try:
        result = command.main(args=arguments, prog_name="gem", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as e:
        return e.exit_code
    except _CLICK_ERROR as e:
        e.show()  # type: ignore[attr-defined]
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `gem list | head`
        sys.stdout = None
        return 0
    except Exception as e:
        if debug:
            traceback.print_exc()
        else:
            print(f"gem: {_message(e)}", file=sys.stderr)
        if isinstance(e, ImportError):
            return MISSING_PACKAGE
        return USAGE if isinstance(e, (ValueError, FileNotFoundError, TypeError)) else FAILED


def _message(error: Exception) -> str:
    text = str(error) or type(error).__name__
    known = isinstance(error, (ValueError, ImportError, OSError, RuntimeError))
    return text if known else f"{type(error).__name__}: {text} (--debug shows where)"

"""``gem eval`` and ``gem compare``."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gem_core.cli.common import (
    ApiKeyEnv,
    Backend,
    BaseUrl,
    EnvArgs,
    EnvIds,
    Extra,
    MaxTokens,
    Mode,
    Policy,
    Temperature,
    TokenizerName,
    TopP,
    Wrappers,
    model_options,
    settings,
)

_LIMITS, _ENDPOINT, _OUTPUT = "Limits of an episode", "Endpoint", "Output"


def eval_command(
    env_ids: EnvIds,
    policy: Policy,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "-n", help="Different starts of each environment [a dataset: all rows; else 100]."),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", "-k", help="Episodes from each start, for pass@k.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first start.")] = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Episodes in flight.")] = 64,
    env_arg: EnvArgs = None,
    wrappers: Wrappers = "",
    system_prompt: Annotated[str | None, typer.Option(help="Put before the first observation.")] = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    mode: Mode = "chat",
    backend: Backend = None,
    tokenizer: TokenizerName = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    extra: Extra = None,
    rpm: Annotated[float | None, typer.Option(help="Requests a minute.", rich_help_panel=_ENDPOINT)] = None,
    tpm: Annotated[float | None, typer.Option(help="Tokens a minute.", rich_help_panel=_ENDPOINT)] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.", rich_help_panel=_ENDPOINT)] = 300.0,
    tries: Annotated[int, typer.Option(help="Tries of one request.", rich_help_panel=_ENDPOINT)] = 8,
    max_turns: Annotated[int | None, typer.Option(help="Turns.", rich_help_panel=_LIMITS)] = None,
    max_context: Annotated[int | None, typer.Option(help="Tokens of one context.", rich_help_panel=_LIMITS)] = None,
    step_timeout: Annotated[
        float | None, typer.Option(help="Seconds of one environment step.", rich_help_panel=_LIMITS)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The run's folder [one under runs/eval, by the command].", rich_help_panel=_OUTPUT
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace what the folder holds.", rich_help_panel=_OUTPUT)
    ] = False,
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Do not play failed episodes again.", rich_help_panel=_OUTPUT)
    ] = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option("--compare", help="Compare with another run's folder; may be repeated.", rich_help_panel=_OUTPUT),
    ] = None,
    output: Annotated[
        str, typer.Option("--format", "-f", help="table, json, markdown or latex.", rich_help_panel=_OUTPUT)
    ] = "table",
    confidence: Annotated[float, typer.Option(help="Of the intervals.", rich_help_panel=_OUTPUT)] = 0.95,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.", rich_help_panel=_OUTPUT)] = False,
) -> int:
    """Evaluates a policy.

    Every finished episode is recorded at once: the same command goes on where it was stopped, and a finished one shows
    its results again. Failed episodes (a fault of the endpoint or the environment) are counted, but in no mean, and are
    played again by the same command.

    Examples:

        gem eval game:Wordle-v0-easy --policy scripted --episodes 100

        gem eval game:Wordle-v0-easy game:Sudoku-v0-easy -p MODEL --base-url https://host/v1 -n 200 --rpm 500

        gem eval math:GSM8K -p Qwen/Qwen3-1.7B --wrappers python_tool --max-tokens 1024 -k 4

        gem eval game:Wordle-v0-easy -p ./checkpoint-200 --compare runs/eval/base
    """
    from gem_core.evaluation import EvalResult, Intervals, evaluate, load_player, plan_tasks
    from gem_core.evaluation import compare as compare_runs
    from gem_core.session import Limits

    _check_format(output)
    how = Intervals(confidence=confidence)
    others = [EvalResult.read(p, how) for p in compare or []]
    options = model_options(
        base_url=base_url,
        api_key_env=api_key_env,
        mode=mode,
        backend=backend,
        tokenizer=tokenizer,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        extra=settings(extra, "--set"),
        endpoint={
            "timeout_s": timeout,
            "max_tries": tries,
            "requests_per_minute": rpm,
            "tokens_per_minute": tpm,
        },
    )
    env_kwargs = settings(env_arg, "--env-arg")
    plan = plan_tasks(env_ids, episodes, seed, samples, env_kwargs)  # mistakes show before a model is loaded
    limits = Limits(max_turns=max_turns, max_context_tokens=max_context)
    player = load_player(policy, plan.env_ids, options)
    try:
        settings_of_run = [dict(player.config), seed, wrappers, env_kwargs, system_prompt, repr(limits)]
        folder = out or _default_folder(plan.env_ids, policy, settings_of_run)
        from gem_core.cli.progress import EvalProgress

        with EvalProgress(len(plan.tasks), quiet) as shown:
            result = evaluate(
                plan.env_ids,
                player,
                episodes=episodes,
                seeds=seed,
                samples=samples,
                concurrency=concurrency,
                log=folder,
                resume=not fresh,
                retry_failed=not keep_failed,
                limits=limits,
                system_prompt=system_prompt,
                env_kwargs=env_kwargs,
                wrappers=wrappers,
                intervals=how,
                step_timeout_s=step_timeout,
                on_episode=shown.add,
            )
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {folder}", file=sys.stderr)
        return 130
    finally:
        player.close()
    comparisons = [compare_runs(result, other, intervals=how) for other in others]
    show_result(result, comparisons, output)
    if output == "table":
        _closing_lines(result, folder, len(plan.tasks))
    return 1 if result.episodes and result.failed == result.episodes else 0


def compare_command(
    a: Annotated[Path, typer.Argument(help="An evaluation's folder.")],
    b: Annotated[Path, typer.Argument(help="Another's.")],
    metric: Annotated[list[str] | None, typer.Option(help="What to compare; may be repeated.")] = None,
    output: Annotated[str, typer.Option("--format", "-f", help="table, json, markdown or latex.")] = "table",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
) -> None:
    """Compares two evaluations on the tasks that both played: paired bootstrap and permutation test.

    Example:

        gem compare runs/eval/trained runs/eval/base --metric success
    """
    from gem_core.evaluation import EvalResult, Intervals
    from gem_core.evaluation import compare as compare_runs

    _check_format(output)
    how = Intervals(confidence=confidence)
    comparison = compare_runs(EvalResult.read(a, how), EvalResult.read(b, how), metric, how)
    show_result(None, [comparison], output)


def show_result(result: Any, comparisons: list[Any], output: str) -> None:
    """Prints a result (or None) and comparisons in one of the formats."""
    parts = [p for p in (result, *comparisons) if p is not None]
    if output == "json":
        if len(parts) == 1:
            print(parts[0].to_json())
        else:
            print(json.dumps({"result": result.to_dict(), "comparisons": [c.to_dict() for c in comparisons]}, indent=2))
    elif output == "markdown":
        print("\n\n".join(p.to_markdown() for p in parts))
    elif output == "latex":
        print("\n\n".join(p.to_latex() for p in parts))
    else:
        from gem_core.cli.tables import print_comparison, print_result

        if result is not None:
            print_result(result)
        for comparison in comparisons:
            print_comparison(comparison)


def _check_format(output: str) -> None:
    if output not in ("table", "json", "markdown", "latex"):
        raise ValueError(f"--format must be table, json, markdown or latex, got {output!r}")


def _default_folder(env_ids: list[str], policy: str, parts: list[Any]) -> Path:
    """The same for the same command; more episodes or samples go on in it."""
    shown = [p for p in parts[:1] if p]
    parts = [{k: v for k, v in p.items() if k != "base_url"} for p in shown] + parts[1:]
    digest = hashlib.sha256(json.dumps([env_ids, parts], sort_keys=True, default=str).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", policy.rstrip("/").split("/")[-1]).strip("-") or "model"
    first = re.sub(r"[^A-Za-z0-9.-]+", "-", env_ids[0])
    more = "" if len(env_ids) == 1 else f"-and-{len(env_ids) - 1}"
    return Path("runs") / "eval" / f"{name}-{first}{more}-{digest}"


def _closing_lines(result: Any, folder: Path, tasks: int) -> None:
    played = result.stats.episodes if result.stats else 0
    if played < tasks:
        print(f"{tasks - played} of {tasks} episodes were recorded before (--fresh plays them again)")
    for error, times in result.errors().items():
        print(f"failed {times} times: {error}", file=sys.stderr)
    tried = result.requests.get("failed_tries")
    if tried:
        print("tried again: " + ", ".join(f"{n} x {reason}" for reason, n in tried.items()))
    if result.requests.get("reused_answers"):
        print(f"{result.requests['reused_answers']} answers were taken from an earlier try")
    print(f"episodes, results.json, .md and .tex: {folder}    report: gem report {folder}")

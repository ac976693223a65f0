"""``gem rollout``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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


def rollout_command(
    env_ids: EnvIds,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .jsonl or .parquet.")],
    policy: Policy = "scripted",
    episodes: Annotated[int, typer.Option("--episodes", "-n", help="Different starts of each environment.")] = 100,
    samples: Annotated[int, typer.Option("--samples", "-k", help="Episodes from each start.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first start.")] = 0,
    form: Annotated[
        str,
        typer.Option("--format", "-f", help="episodes, sft (chat messages), or sequences (token ids and masks)."),
    ] = "episodes",
    only_success: Annotated[bool, typer.Option("--only-success", help="Keep solved episodes only.")] = False,
    min_return: Annotated[float | None, typer.Option(help="Keep episodes with at least this return.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Episodes in flight.")] = 64,
    env_arg: EnvArgs = None,
    wrappers: Wrappers = "",
    system_prompt: Annotated[str | None, typer.Option(help="Put before the first observation.")] = None,
    max_turns: Annotated[int | None, typer.Option(help="Turns of an episode.")] = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    mode: Mode = "chat",
    backend: Backend = None,
    tokenizer: TokenizerName = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    extra: Extra = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Plays episodes and writes them to a file, for supervised warm starts, say.

    What was played is kept in FILE.run beside the file: the same command goes on where it was stopped. Failed episodes
    are left out.

    Examples:

        gem rollout game:Wordle-v0-easy -p scripted -n 1000 --format sft -o wordle.jsonl

        gem rollout game:Sudoku-v0-easy -p MODEL --base-url http://host:8000/v1 -k 8 --only-success -o wins.parquet
    """
    from gem_core.cli.progress import EvalProgress
    from gem_core.evaluation import evaluate, load_player, plan_tasks
    from gem_core.evaluation.export import FORMATS, write_rows
    from gem_core.session import Limits

    if form not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}, got {form!r}")
    if out.suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"--out must end in .jsonl or .parquet, got {out}")
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
    )
    env_kwargs = settings(env_arg, "--env-arg")
    plan = plan_tasks(env_ids, episodes, seed, samples, env_kwargs)
    player = load_player(policy, plan.env_ids, options)
    folder = out.with_name(out.name + ".run")
    try:
        with EvalProgress(len(plan.tasks), quiet) as shown:
            result = evaluate(
                plan.env_ids,
                player,
                episodes=episodes,
                seeds=seed,
                samples=samples,
                concurrency=concurrency,
                log=folder,
                limits=Limits(max_turns=max_turns),
                system_prompt=system_prompt,
                env_kwargs=env_kwargs,
                wrappers=wrappers,
                on_episode=shown.add,
            )
    finally:
        player.close()
    kept = {
        r.episode_id
        for r in result.records
        if not r.failed and (not only_success or r.success) and (min_return is None or r.total_reward >= min_return)
    }
    rows = write_rows(folder / "episodes.jsonl", out, form, kept, system_prompt=system_prompt)
    print(f"{rows} rows of {len(kept)} episodes ({result.episodes} played, {result.failed} failed): {out}")

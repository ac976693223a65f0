"""What several commands share: completion, values, how a model is named."""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any

import typer


def complete_env(incomplete: str) -> list[str]:
    """Ids for the shell's completion."""
    from gem_core import list_envs

    return [i for i in list_envs() if i.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[str]:
    return [p for p in ("scripted", "random", "human") if p.startswith(incomplete)]


EnvId = Annotated[
    str, typer.Argument(metavar="ID", help="An environment's id; see `gem list`.", autocompletion=complete_env)
]
EnvIds = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Environments' ids; see `gem list`.", autocompletion=complete_env)
]
POLICY_HELP = (
    "scripted, random, human, or a model: a Hugging Face id or folder; with --base-url, its name at the endpoint."
)
Policy = Annotated[
    str, typer.Option("--policy", "-p", metavar="POLICY", help=POLICY_HELP, autocompletion=complete_policy)
]
MODEL = "Model"
BaseUrl = Annotated[
    str | None,
    typer.Option(help="An OpenAI-compatible endpoint, up to /v1.", metavar="URL", rich_help_panel=MODEL),
]
ApiKeyEnv = Annotated[
    str, typer.Option(help="The environment variable with the API key.", metavar="NAME", rich_help_panel=MODEL)
]
Mode = Annotated[
    str, typer.Option(help="At an endpoint: chat, or completions (token ids, vLLM).", rich_help_panel=MODEL)
]
Backend = Annotated[
    str | None, typer.Option(help="Of a local model: transformers (default) or vllm.", rich_help_panel=MODEL)
]
TokenizerName = Annotated[
    str | None, typer.Option("--tokenizer", help="Where it is not the model's own.", rich_help_panel=MODEL)
]
Temperature = Annotated[float | None, typer.Option(help="0 = the likeliest token.", rich_help_panel=MODEL)]
TopP = Annotated[float | None, typer.Option(help="Nucleus sampling.", rich_help_panel=MODEL)]
MaxTokens = Annotated[int | None, typer.Option(help="Sampled in one turn.", rich_help_panel=MODEL)]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Further settings of the endpoint's requests (top_k=20) or of vLLM's engine; may be repeated.",
        rich_help_panel=MODEL,
    ),
]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-arg", "-a", metavar="KEY=VALUE", help="For the environment's constructor; may be repeated."),
]
Wrappers = Annotated[
    str, typer.Option(help="Wrappers by name, comma-separated, innermost first: python_tool,concat.", metavar="NAMES")
]
Debug = Annotated[bool, typer.Option("--debug", hidden=True)]


def settings(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; values are JSON or Python literals, else text.

    Raises:
        ValueError: not of that form.
    """
    out: dict[str, Any] = {}
    for pair in pairs or []:
        key, found, text = pair.partition("=")
        if not found or not key:
            raise ValueError(f"{option} takes KEY=VALUE, got {pair!r}")
        out[key] = _value(text)
    return out


def _value(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


def model_options(
    *,
    base_url: str | None,
    api_key_env: str,
    mode: str,
    backend: str | None,
    tokenizer: str | None,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    seed: int,
    extra: dict[str, Any],
    endpoint: dict[str, Any] | None = None,
) -> Any:
    """The options of a model from those of the command line; ``endpoint`` = further ones of an endpoint."""
    import os

    from gem_core.evaluation import ModelOptions

    if mode not in ("chat", "completions"):
        raise ValueError(f"--mode must be chat or completions, got {mode!r}")
    if backend not in (None, "transformers", "vllm"):
        raise ValueError(f"--backend must be transformers or vllm, got {backend!r}")
    if base_url is not None:
        extra = {**(endpoint or {}), **({"extra_body": extra} if extra else {})}
    return ModelOptions(
        backend=backend,  # type: ignore[arg-type]
        base_url=base_url,
        api_key=os.environ.get(api_key_env),
        mode=mode,  # type: ignore[arg-type]
        tokenizer=tokenizer,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        extra=extra,
    )

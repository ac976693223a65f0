"""Loading local models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core.chat import ChatRenderer, PlainRenderer, Renderer


def load_tokenizer(name: str) -> Any:
    """A Hugging Face tokenizer.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is none under this name.
    """
    _check_folder(name)
    auto = _transformers().AutoTokenizer
    try:
        return auto.from_pretrained(name)
    except (OSError, ValueError) as e:
        raise ValueError(f"no tokenizer can be loaded from {name!r}: {_first_line(e)}") from e


def load_model(name: str, device: str | None = None) -> Any:
    """A causal language model, in the type its file has, for sampling.

    Raises:
        ImportError: transformers or torch is missing.
        ValueError: there is none under this name.
    """
    auto = _transformers().AutoModelForCausalLM
    import torch

    try:
        model = auto.from_pretrained(name, dtype="auto")
    except (OSError, ValueError) as e:
        raise ValueError(
            f"no model can be loaded from {name!r}: {_first_line(e)}. For a model at an endpoint give its base_url"
        ) from e
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()


def make_renderer(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> Renderer:
    """By the tokenizer's chat template; as plain text where it has none (a base model)."""
    if getattr(tokenizer, "chat_template", None) is None:
        if template_kwargs:
            raise ValueError("template_kwargs were given, but the tokenizer has no chat template")
        return PlainRenderer(tokenizer)
    return ChatRenderer(tokenizer, template_kwargs=template_kwargs)


def _check_folder(name: str) -> None:
    """A mistyped path would be looked for on the Hub, for a long time."""
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        path = Path(name)
        if not (path / "config.json").is_file():
            what = "it has no config.json" if path.is_dir() else "there is no such folder"
            raise ValueError(f"no model can be loaded from {name!r}: {what}")


def _transformers() -> Any:
    try:
        import torch  # noqa: F401 - transformers says only later that it needs it
        import transformers
    except ModuleNotFoundError as e:
        raise ImportError(
            f"a local model needs the package {e.name!r}: pip install 'gem-adapters[trl]'", name=e.name
        ) from e
    return transformers


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

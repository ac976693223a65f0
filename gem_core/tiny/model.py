"""A Qwen3 model small enough to learn a game on one CPU core, built on the spot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core.tiny.corpus import corpus
from gem_core.tiny.tokenizer import build_tokenizer, number_ids

#: Environments whose texts the tokenizer knows by default.
DEFAULT_ENVS = ("game:GuessTheNumber-v0",)


def build_tiny(
    seed: int = 0,
    env_ids: Sequence[str] = DEFAULT_ENVS,
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int | None = None,
    head_dim: int = 32,
    max_position_embeddings: int = 4096,
    ordered_numbers: bool = True,
) -> tuple[Any, Any]:
    """Builds a randomly initialised model and its tokenizer.

    Args:
        seed: Fixes the weights; the global generators are left as they were.
        env_ids: Environments to read; see :func:`gem_core.tiny.corpus`.
        hidden_size: Width.
        num_layers: Depth.
        num_heads: Attention heads; None = one for every 16 of ``hidden_size``.
        head_dim: vLLM's CPU kernels take 32 and more.
        max_position_embeddings: Context window in tokens.
        ordered_numbers: Start the embeddings of 0 to 99 in number order, see :func:`order_numbers`.

    Returns:
        ``(model, tokenizer)``: a float32 ``Qwen3ForCausalLM`` in evaluation mode and a fast tokenizer with a chat
        template.
    """
    tokenizer = build_tokenizer(corpus(env_ids))  # names the extra if transformers is missing
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    heads = num_heads or max(1, hidden_size // 16)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,  # tensor-parallel engines want a round size
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=max_position_embeddings,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    tokenizer.model_max_length = max_position_embeddings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen3ForCausalLM(config)
    if ordered_numbers:
        order_numbers(model, number_ids(tokenizer))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.eval(), tokenizer


def order_numbers(model: Any, ids: Sequence[int], scale: float = 0.1, width: float = 3.0) -> None:
    """Adds to the embeddings of consecutive numbers a code in which near numbers are near.

    A pretrained language model knows the order of numbers; a model of random weights would have to learn it from
    rewards. Half of the dimensions are soft steps: dimension ``k`` rises where the number passes its threshold, and
    thresholds lie closer for small numbers.

    Args:
        model: Any model with ``get_input_embeddings``; changed in place.
        ids: Token ids of 0, 1, 2, ...
        scale: Size of the code, against the embeddings' own 0.02.
        width: How many numbers a step spans at the small end.
    """
    import torch

    weight = model.get_input_embeddings().weight
    half = weight.shape[1] // 2
    spot = torch.linspace(0, 1, half, dtype=torch.float32)
    threshold = (len(ids) - 1) * (0.25 * spot + 0.75 * spot**6)  # two of three among the first quarter of the numbers
    slope = width * (1 + threshold / 40)
    n = torch.arange(len(ids), dtype=torch.float32)[:, None]
    with torch.no_grad():
        weight[list(ids), :half] += (scale * torch.tanh((n - threshold) / slope)).to(weight.dtype)


def save_tiny(model: Any, tokenizer: Any, path: str | Path) -> Path:
    """Writes a folder that ``AutoModelForCausalLM`` and ``AutoTokenizer`` load."""
    path = Path(path)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    # transformers 5 writes a class name that 4.x does not know; both know this one.
    config = path / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return path


def load_tiny(path: str | Path) -> tuple[Any, Any]:
    """Reads what :func:`save_tiny` wrote."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return model.eval(), AutoTokenizer.from_pretrained(path)

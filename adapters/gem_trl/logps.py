"""Log probabilities of the sampled tokens only, with little padding: what a training pass on a CPU needs."""

from __future__ import annotations

from typing import Any

import torch


def sampled_logps(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    mask: torch.Tensor,
    temperature: float,
    rows_at_once: int = 8,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores the tokens where ``mask`` is 1.

    Rows of like length go through the model together, cut to the longest among them, and the LM head runs only at
    columns in which any of these rows has a sampled token (the turns of a game often line up).

    Args:
        model: A causal language model, wrapped for data-parallel training or not.
        input_ids: Prompts (left-padded) and completions (right-padded), shape (rows, prompt + T).
        attention_mask: Of the same shape.
        mask: 1 = sampled, shape (rows, T).
        temperature: Divides the logits.
        rows_at_once: See above.

    Returns:
        Log probabilities and entropies (the latter without gradient), both of shape (rows, T), 0.0 where ``mask`` is 0.
    """
    width = mask.shape[1]
    prompt = input_ids.shape[1] - width
    order = attention_mask.sum(1).argsort(stable=True)
    logps: list[torch.Tensor] = []
    entropies: list[torch.Tensor] = []
    for start in range(0, len(order), rows_at_once):
        rows = order[start : start + rows_at_once]
        seen = attention_mask[rows].any(0).nonzero()[:, 0]
        first, last = (int(seen[0]), int(seen[-1]) + 1) if len(seen) else (0, 1)
        columns = mask[rows].any(0).nonzero()[:, 0]
        if not len(columns):  # the pass still counts: data-parallel ranks wait for its gradient
            columns = torch.zeros(1, dtype=torch.long, device=mask.device)
            last = max(last, prompt + 1)
        ids = input_ids[rows, first:last]
        out = model(
            input_ids=ids,
            attention_mask=attention_mask[rows, first:last],
            use_cache=False,
            logits_to_keep=columns + (prompt - first - 1),
        )
        logp = (out.logits.float() / temperature).log_softmax(-1)
        taken = logp.gather(-1, ids[:, columns + (prompt - first), None])[..., 0]
        with torch.no_grad():
            entropy = -(logp.exp() * logp).sum(-1)
        here = mask[rows][:, columns]
        blank = taken.new_zeros((len(rows), width))
        logps.append(blank.index_copy(1, columns, taken * here))
        entropies.append(blank.index_copy(1, columns, entropy * here))
    back = order.argsort()
    return torch.cat(logps)[back], torch.cat(entropies)[back]

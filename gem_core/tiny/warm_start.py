"""A short supervised warm start: what a pretrained model would bring along.

It hands the model the form of an action, the meaning of the observations' words and, in most episodes, actions that
agree with what was said. It does not hand it good play: the demonstrator of a game chooses among all sensible actions
alike, and a share of the episodes is random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gem_core.chat import ChatRenderer
from gem_core.core import Env
from gem_core.episode import Episode, TokenSequence
from gem_core.experts import Expert, demonstrator
from gem_core.policies import TextPolicy
from gem_core.registration import make
from gem_core.session import EpisodeSession, Limits, Prompt

if TYPE_CHECKING:
    import torch

#: Seeds of the demonstrations' games start here, away from those of training and of held-out evaluation.
_FIRST_SEED = 3 * 2**30


def demonstrations(
    tokenizer: Any,
    env: Env | str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    p_good: float = 0.7,
    seed: int = 0,
    limits: Limits | None = None,
) -> Iterator[Episode]:
    """Endless scripted episodes, played through :class:`EpisodeSession`: the tokens are laid out as in a rollout.

    Args:
        tokenizer: With a chat template.
        env: An environment, wrapped as in training, or its id.
        env_kwargs: Arguments of the environment, where ``env`` is an id.
        p_good: Share of the episodes that the game's demonstrator plays; the others are random.
        seed: Same seed, same episodes.
        limits: Of each episode.
    """
    rng = random.Random(f"demonstrations:{seed}")
    env = make(env, **(env_kwargs or {})) if isinstance(env, str) else env
    env_id = env.unwrapped.env_id
    renderer, sensible = ChatRenderer(tokenizer), demonstrator(env_id) if env_id else None
    while True:
        good = rng.random() < p_good
        policy = TextPolicy(_player(env, sensible if good else None, rng), tokenizer)
        session = EpisodeSession(env, renderer, seed=_FIRST_SEED + rng.getrandbits(29), limits=limits)
        prompt = session.start()
        while prompt is not None:
            prompt = session.submit(policy.generate([prompt])[0])
        if session.episode.failed:
            raise RuntimeError(f"a demonstration in {env_id} failed: {session.episode.error}")
        yield session.episode


def warm_start(
    model: Any,
    tokenizer: Any,
    env: Env | str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    steps: int = 75,
    episodes_per_step: int = 64,
    learning_rate: float = 4e-3,
    warmup_steps: int = 20,
    p_good: float = 0.7,
    observation_weight: float = 0.1,
    seed: int = 0,
    limits: Limits | None = None,
) -> list[float]:
    """Trains ``model`` in place on :func:`demonstrations`; deterministic by seed on one machine.

    Args:
        model: A causal language model.
        tokenizer: With a chat template.
        env: See :func:`demonstrations`.
        env_kwargs: See :func:`demonstrations`.
        steps: AdamW updates.
        episodes_per_step: Episodes in each.
        learning_rate: After ``warmup_steps`` updates of linear rise.
        warmup_steps: See above.
        p_good: See :func:`demonstrations`.
        observation_weight: Of the loss on environment tokens, against 1.0 on the actions'.
        seed: See :func:`demonstrations`.
        limits: Of each episode.

    Returns:
        The loss of each update.
    """
    import torch

    device = model.get_input_embeddings().weight.device
    pad = tokenizer.pad_token_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0, betas=(0.9, 0.95))
    source = demonstrations(tokenizer, env, env_kwargs, p_good=p_good, seed=seed, limits=limits)
    losses: list[float] = []
    was_training = model.training
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / max(1, warmup_steps))
        batch = [s for _ in range(episodes_per_step) for s in next(source).to_sequences()]
        ids, attention, weights = collate(batch, pad, observation_weight)
        ids, attention, weights = ids.to(device), attention.to(device), weights.to(device)
        logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits
        loss_per_token = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
        ).view(ids.shape[0], -1)
        loss = (loss_per_token * weights[:, 1:]).sum() / weights[:, 1:].sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    model.train(was_training)
    return losses


def collate(
    sequences: Sequence[TokenSequence], pad: int, observation_weight: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Right-padded ids, attention mask and loss weights (1.0 on sampled tokens), all of shape (sequences, longest)."""
    import torch

    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), pad)
    attention = torch.zeros((len(sequences), width), dtype=torch.long)
    weights = torch.zeros((len(sequences), width))
    for i, s in enumerate(sequences):
        ids[i, : len(s)] = torch.tensor(s.input_ids)
        attention[i, : len(s)] = 1
        sampled = torch.tensor([0] * len(s.prompt_ids) + s.response_mask, dtype=torch.float32)
        weights[i, : len(s)] = sampled + observation_weight * (1 - sampled)
    return ids, attention, weights


def _player(env: Env, sensible: Expert | None, rng: random.Random) -> Any:
    def answer(prompt: Prompt) -> str:
        return env.sample_random_action() if sensible is None else sensible(prompt.messages, rng)

    return answer

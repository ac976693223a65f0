"""Policies: what answers a :class:`~gem_core.session.Prompt`.

Every policy has ``generate(prompts) -> generations``, one answer a prompt, in order.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gem_core.session import Generation, Prompt

if TYPE_CHECKING:
    import torch

    from gem_core.core import Env


class Policy(Protocol):
    """Answers prompts in batches."""

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """Returns one answer for each prompt, in order."""


class TextPolicy:
    """A policy that writes whole answers as text, without a model.

    Args:
        answer: From a prompt (its ``messages``, ``episode_id`` and ``turn``) to the answer.
        tokenizer: Gives the answer's token ids too, for sessions with a renderer: the text's and ``eos_token_id``.
    """

    def __init__(self, answer: Callable[[Prompt], str], tokenizer: Any = None) -> None:
        self._answer = answer
        self._tokenizer = tokenizer

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        generations = []
        for prompt in prompts:
            text = self._answer(prompt)
            ids: list[int] = []
            if self._tokenizer is not None:
                ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
            room = prompt.max_new_tokens
            if room is not None and len(ids) > room:
                ids = ids[:room]
                text = self._tokenizer.decode(ids, skip_special_tokens=True)
                generations.append(Generation(ids, finish_reason="length", text=text))
            else:
                generations.append(Generation(ids, text=text))
        return generations


class RandomPolicy(TextPolicy):
    """Well-formed random actions, from ``env.sample_random_action()``.

    Args:
        env_of: From an episode's id to the environment it is played in.
        tokenizer: See :class:`TextPolicy`.
    """

    def __init__(self, env_of: Callable[[str], Env], tokenizer: Any = None) -> None:
        super().__init__(lambda prompt: env_of(prompt.episode_id).sample_random_action(), tokenizer)


class ScriptedPolicy(TextPolicy):
    """Plays by an expert of :mod:`gem_core.experts`, from the conversation alone.

    Args:
        env_id: The environment that the expert is for.
        tokenizer: See :class:`TextPolicy`.
        seed: For experts that choose among equals; an episode's answers depend on it, its id and the turn only.

    Raises:
        ValueError: no expert is known for ``env_id``; the message names those there are.
    """

    def __init__(self, env_id: str, tokenizer: Any = None, seed: int = 0) -> None:
        from gem_core.experts import expert

        play = expert(env_id)

        def answer(prompt: Prompt) -> str:
            return play(prompt.messages, random.Random(f"{seed}:{prompt.episode_id}:{prompt.turn}"))

        super().__init__(answer, tokenizer)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from a model's logits."""

    temperature: float = 1.0
    #: Keep the likeliest tokens that together hold this probability.
    top_p: float = 1.0
    #: Keep this many likeliest tokens; 0 = all.
    top_k: int = 0
    #: Take the likeliest token instead of drawing. Log probabilities are then those of the distribution above.
    greedy: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"temperature must be positive, got {self.temperature!r}; for the likeliest use greedy=True"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie above 0 and up to 1, got {self.top_p!r}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (all) or positive, got {self.top_k!r}")


@dataclass
class _Cache:
    """The key-value cache of one batch, kept from turn to turn."""

    #: A ``transformers.DynamicCache``.
    values: Any
    #: 1 where a cached position holds a token of the row, shape (rows, cached).
    mask: torch.Tensor
    #: The episode and the ids of each row's cached tokens.
    episode_ids: list[str]
    ids: list[list[int]]
    #: Tells whether the weights are still those that filled the cache.
    weights: tuple[Any, ...] = field(default=())


class TransformersPolicy:
    """Samples from a Hugging Face causal language model, many episodes at a time.

    Prompts are left-padded with an attention mask. The key-value cache is kept across turns, so of an episode's next
    prompt only the new observation is computed; rows of finished episodes are dropped. A changed context, changed
    weights or a row that left the batch are noticed and computed anew.

    The draw of a token depends on the seed, the episode's id and the position only, not on which other episodes are in
    the batch or in which order they come (up to the floating-point noise of differently padded batches).

    Args:
        model: A causal language model; it is put into evaluation mode while sampling.
        tokenizer: For the end-of-turn and padding ids.
        sampling: See :class:`Sampling`.
        max_new_tokens: For each turn, where the session's limits do not say less.
        seed: See above.
        stop_token_ids: End a turn; None = the tokenizer's and the generation config's end tokens.
        keep_cache: Keep the cache across turns; None = where the model's layers all use plain attention.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        sampling: Sampling | None = None,
        max_new_tokens: int = 1024,
        seed: int = 0,
        stop_token_ids: Sequence[int] | None = None,
        keep_cache: bool | None = None,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be positive, got {max_new_tokens!r}")
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling or Sampling()
        self.max_new_tokens = max_new_tokens
        self.seed = seed
        self.stop_token_ids = frozenset(_stop_ids(model, tokenizer) if stop_token_ids is None else stop_token_ids)
        plain = _plain_attention(model.config)
        if keep_cache and not plain:
            raise ValueError(
                f"keep_cache=True needs plain attention in every layer; {model.config.model_type} has other"
            )
        self.keep_cache = plain if keep_cache is None else keep_cache
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self.stop_token_ids)
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._cache: _Cache | None = None
        # transformers 5.24 renamed the argument and the output field.
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._cache_name = "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"

    def reset(self) -> None:
        """Drops the cache, to free its memory."""
        self._cache = None

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`Policy`.

        Raises:
            ValueError: a prompt is empty or leaves no room in the model's context window.
        """
        import torch

        if not prompts:
            return []
        rooms = [self._room(p) for p in prompts]
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                return self._generate(prompts, rooms)
        except BaseException:
            self._cache = None  # it may hold half a step
            raise
        finally:
            self.model.train(was_training)

    def _room(self, prompt: Prompt) -> int:
        if not prompt.token_ids:
            raise ValueError(f"episode {prompt.episode_id!r}: a prompt without token ids; give the session a renderer")
        room = self.max_new_tokens
        if prompt.max_new_tokens is not None:
            room = min(room, prompt.max_new_tokens)
        if self._context is not None:
            room = min(room, self._context - len(prompt.token_ids))
        if room < 1:
            raise ValueError(
                f"the prompt of episode {prompt.episode_id!r} has {len(prompt.token_ids)} tokens, which leaves no room "
                f"in the model's {self._context}: set Limits.max_context_tokens"
            )
        return room

    def _generate(self, prompts: list[Prompt], rooms: list[int]) -> list[Generation]:
        import torch

        device = self.model.get_input_embeddings().weight.device
        cache, fresh = self._take_cache(prompts, device)
        mask = cache.mask
        length = mask.sum(1)  # of each row, in tokens; positions count from it
        tokens, new = _left_pad(fresh, self._pad, device)
        draws = [random.Random(f"{self.seed}:{p.episode_id}:{p.turn}:{len(p.token_ids)}") for p in prompts]
        sampled: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        live = [True] * len(prompts)
        values = cache.values
        while True:
            positions = (length[:, None] + new.cumsum(1) - 1).clamp(min=0)
            mask = torch.cat([mask, new], dim=1)
            length = length + new.sum(1)
            out = self.model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{self._cache_name: values},
            )
            values = getattr(out, self._cache_name)
            u = [draw.random() for draw in draws]
            chosen, logp = sample(out.logits[:, -1], self.sampling, u)
            fed = live.copy()
            for i, (token, lp) in enumerate(zip(chosen.tolist(), logp.tolist(), strict=True)):
                if fed[i]:
                    sampled[i].append(token)
                    logprobs[i].append(lp)
                    live[i] = token not in self.stop_token_ids and len(sampled[i]) < rooms[i]
            if not any(live):
                break
            tokens = chosen[:, None]
            new = torch.tensor(live, device=device, dtype=mask.dtype)[:, None]
        if self.keep_cache:
            # All but a row's last sampled token went through the model.
            cache.ids = [p.token_ids + s[:-1] for p, s in zip(prompts, sampled, strict=True)]
            cache.values, cache.mask = values, mask
            self._cache = cache
        return [
            Generation(s, lp, "stop" if s[-1] in self.stop_token_ids else "length")
            for s, lp in zip(sampled, logprobs, strict=True)
        ]

    # -- the cache --------------------------------------------------------------------------------------------

    def _take_cache(self, prompts: list[Prompt], device: Any) -> tuple[_Cache, list[list[int]]]:
        """The cache with one row a prompt, and the tokens of each prompt that are not in it."""
        import torch

        old, self._cache = self._cache, None
        episode_ids = [p.episode_id for p in prompts]
        weights = _weights(self.model) if self.keep_cache else ()
        empty = torch.zeros((len(prompts), 0), dtype=torch.long, device=device)
        if not self.keep_cache:
            return _Cache(None, empty, episode_ids, []), [p.token_ids for p in prompts]
        from transformers import DynamicCache

        row_of = {e: i for i, e in enumerate(old.episode_ids)} if old is not None and old.weights == weights else {}
        rows = []
        for p in prompts:
            row = row_of.get(p.episode_id, -1)
            known = old.ids[row] if old is not None and row >= 0 else []
            fits = 0 < len(known) < len(p.token_ids) and p.token_ids[: len(known)] == known
            rows.append(row if fits else -1)
        if old is None or max(rows) < 0:
            return _Cache(DynamicCache(), empty, episode_ids, [], weights), [p.token_ids for p in prompts]
        picked = torch.tensor([max(r, 0) for r in rows], device=device)
        found = torch.tensor([[r >= 0] for r in rows], device=device)
        mask = old.mask[picked] * found
        # Rows are padded to their longest in every step, so holes pile up: close them once they are the larger part.
        width = int(mask.sum(1).max())
        order = mask.argsort(dim=1, stable=True)[:, -width:] if mask.shape[1] > 2 * width else None
        same = rows == list(range(len(old.episode_ids)))
        if order is not None:
            mask = mask.gather(1, order)
        for layer in old.values.layers:
            for name in ("keys", "values"):
                x = getattr(layer, name)
                if not same:
                    x = x[picked]
                if order is not None:
                    x = x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
                setattr(layer, name, x)
        fresh = [p.token_ids[len(old.ids[r]) :] if r >= 0 else p.token_ids for p, r in zip(prompts, rows, strict=True)]
        return _Cache(old.values, mask, episode_ids, [], weights), fresh


def sample(logits: torch.Tensor, how: Sampling, u: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws one token a row by inverting the cumulative distribution.

    Args:
        logits: Shape (rows, vocabulary).
        how: See :class:`Sampling`.
        u: One uniform number in [0, 1) a row.

    Returns:
        Token ids and their log probabilities under the distribution drawn from, both of shape (rows,).
    """
    import torch

    logits = logits.float() / how.temperature
    if how.top_k and how.top_k < logits.shape[-1]:
        least = logits.topk(how.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if how.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)  # probability of all likelier tokens
        drop = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, before >= how.top_p)
        logits = logits.masked_fill(drop, -torch.inf)
    logp = logits.log_softmax(-1)
    if how.greedy:
        chosen = logp.argmax(-1)
    else:
        cumulative = logp.double().exp().cumsum(-1)
        total = cumulative[:, -1:].contiguous()
        spot = torch.tensor(u, dtype=torch.float64, device=logits.device)[:, None] * total
        chosen = torch.searchsorted(cumulative, spot, right=True)  # right: never a token of probability zero
        last = torch.searchsorted(cumulative, total)  # the last with any; rounding must not lead beyond it
        chosen = torch.minimum(chosen, last)[:, 0]
    return chosen, logp.gather(1, chosen[:, None])[:, 0]


def _left_pad(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both of shape (rows, longest)."""
    import torch

    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(r)) + list(r) for r in rows], device=device)
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=device)
    return ids, mask


def _stop_ids(model: Any, tokenizer: Any) -> list[int]:
    ids: list[int] = []
    for source in (tokenizer, getattr(model, "generation_config", None)):
        value = getattr(source, "eos_token_id", None)
        ids += value if isinstance(value, list) else [] if value is None else [value]
    if not ids:
        raise ValueError("neither the tokenizer nor the generation config has an end token: give stop_token_ids")
    return ids


def _plain_attention(config: Any) -> bool:
    """True where every layer's cache is a growing pair of keys and values."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    return kinds == {"full_attention"} and getattr(text, "sliding_window", None) is None


def _weights(model: Any) -> tuple[Any, ...]:
    """Changes whenever a parameter is replaced or written in place."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters())

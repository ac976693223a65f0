"""``TinkerTrainer``: REINFORCE with return batch normalization, and its relatives, through the Tinker SDK."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tinker import types

from gem_core.advantages import estimate_episodes
from gem_core.core import Env
from gem_core.episode import Episode, summarize
from gem_core.policies import Sampling
from gem_core.rollout import Task, rollout
from gem_tinker.datums import datums, logprob_differences
from gem_tinker.policy import TinkerPolicy
from gem_tinker.settings import HELD_OUT_SEED, TinkerConfig, training_seed

logger = logging.getLogger(__name__)


@dataclass
class Step:
    """What one batch came to."""

    #: Batches before this one.
    step: int
    episodes: list[Episode]
    #: ``return``, ``success`` and the like (:func:`gem_core.episode.summarize`), ``logprob_diff_max`` and
    #: ``logprob_diff_mean`` (trainer against sampler, before the first update), ``kl``, ``rollout_s``, ``update_s`` and
    #: what the server reports.
    metrics: dict[str, float] = field(default_factory=dict)


class TinkerTrainer:
    """Plays batches of episodes through a sampling client and trains on them through a training client.

    Args:
        client: A ``tinker.TrainingClient``.
        tokenizer: Of the model, with a chat template; None = ``client.get_tokenizer()``.
        config: See :class:`~gem_tinker.TinkerConfig`.
        make_env: Builds an environment; None = by the config.
        stop_token_ids: End a turn; None = the tokenizer's end-of-sequence token.
        learning_rate: From the number of batches done to a factor of ``config.learning_rate``; None = 1.0 throughout.
        rollout_options: For :func:`gem_core.rollout.rollout` (executor, workers, concurrency, log).
    """

    def __init__(
        self,
        client: Any,
        config: TinkerConfig,
        tokenizer: Any = None,
        *,
        make_env: Callable[[], Env] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        learning_rate: Callable[[int], float] | None = None,
        rollout_options: dict[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.config = config
        self.tokenizer = tokenizer if tokenizer is not None else client.get_tokenizer()
        self.renderer = config.make_renderer(self.tokenizer)
        self._make_env = make_env or partial(config.make_env, self.tokenizer)
        self._stop = list(stop_token_ids) if stop_token_ids is not None else [self.tokenizer.eos_token_id]
        self._learning_rate = learning_rate
        self._rollout_options = dict(rollout_options or {})

    def train(self, steps: int, first_step: int = 0) -> Iterator[Step]:
        """Yields after each of ``steps`` batches; ``first_step`` are done already (a resumed run)."""
        for step in range(first_step, first_step + steps):
            began = time.perf_counter()
            episodes = self.play(step)
            played = time.perf_counter()
            metrics = {**summarize(episodes), **self.update(episodes, step)}
            metrics |= {"rollout_s": played - began, "update_s": time.perf_counter() - played}
            yield Step(step, episodes, metrics)

    def play(self, step: int) -> list[Episode]:
        """Plays the batch of ``step`` with the weights as they are now."""
        c = self.config
        tasks = [
            self._task(training_seed(c.seed, step, group), f"{step}:{group}", member)
            for group in range(c.groups)
            for member in range(c.group_size)
        ]
        return self._rollout(tasks, Sampling())

    def evaluate(self, episodes: int = 256, *, greedy: bool = True) -> dict[str, float]:
        """Plays held-out seeds; see :func:`gem_core.episode.summarize`."""
        tasks = [self._task(HELD_OUT_SEED + i, f"eval:{i}", 0) for i in range(episodes)]
        return summarize(self._rollout(tasks, Sampling(greedy=greedy)))

    def update(self, episodes: Sequence[Episode], step: int = 0) -> dict[str, float]:
        """Trains on one batch: one or more optimizer updates. Returns what the update says about itself."""
        c = self.config
        advantages = estimate_episodes(c.advantage, episodes, gamma=c.gamma, keep_failed=c.keep_failed)
        # Failed episodes have advantage zero; what has no gradient need not travel.
        kept = [i for i, e in enumerate(episodes) if (c.keep_failed or not e.failed) and e.num_sampled_tokens]
        if not kept:
            logger.warning("step %d: no episode to train on, no update", step)
            return {"updates": 0.0}
        factor = self._learning_rate(step) if self._learning_rate else 1.0
        adam = types.AdamParams(
            learning_rate=c.learning_rate * factor,
            beta1=c.beta1,
            beta2=c.beta2,
            eps=c.adam_eps,
            weight_decay=c.weight_decay,
            grad_clip_norm=c.grad_clip_norm,
        )
        pending = []
        for epoch in range(c.epochs):
            order = np.random.default_rng([c.seed, step, epoch]).permutation(kept) if c.minibatches > 1 else kept
            for part in np.array_split(np.asarray(order), min(c.minibatches, len(kept))):
                chosen = [episodes[i] for i in part]
                tokens = sum(e.num_sampled_tokens for e in chosen)
                scale = 1.0 / (c.loss_divisor or tokens)
                data = datums(chosen, [advantages[i] for i in part], scale=scale)
                # Both requests are sent before either is awaited, so that the server goes from one to the next at once.
                forward = self.client.forward_backward(data, c.loss, dict(c.loss_config) or None)
                pending.append((chosen, forward, self.client.optim_step(adam)))
        metrics = {"updates": float(len(pending)), "learning_rate": adam.learning_rate}
        for number, (chosen, forward, optim) in enumerate(pending):
            result, stepped = forward.result(), optim.result()
            differences = logprob_differences(chosen, result.loss_fn_outputs)
            if number == 0:  # both are still the same policy
                metrics["logprob_diff_max"] = float(np.abs(differences).max())
                metrics["logprob_diff_mean"] = float(np.abs(differences).mean())
            # E[r - 1 - log r] under the sampler, r = p(trainer) / p(sampler); arXiv 1506.02438 has no say here, see
            # Schulman, "Approximating KL Divergence" (2020).
            metrics["kl"] = float(np.mean(np.expm1(differences) - differences))
            for name, value in {**(result.metrics or {}), **(getattr(stepped, "metrics", None) or {})}.items():
                metrics[f"server/{name}"] = float(value)
        return metrics

    # -- inside -----------------------------------------------------------------------------------------------

    def _task(self, seed: int, group: str, member: int) -> Task:
        return Task(self._make_env, seed=seed, episode_id=f"{group}:{member}", group_id=group)

    def _rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Episode]:
        c = self.config
        policy = TinkerPolicy(
            self.client.save_weights_and_get_sampling_client(),
            stop_token_ids=self._stop,
            sampling=sampling,
            max_tokens=c.max_tokens_per_turn,
            seed=c.seed,
        )
        options: dict[str, Any] = {
            "concurrency": len(tasks),
            "limits": c.limits(),
            "context": c.context,
            "system_prompt": c.system_prompt,
            "length_stop": c.length_stop,
            "step_timeout_s": c.env_timeout_s,
            "reset_timeout_s": c.env_timeout_s,
            **self._rollout_options,
        }
        episodes = rollout(tasks, policy, self.renderer, **options)
        for episode in episodes:
            episode.env_id = c.env_id or episode.env_id
        return episodes

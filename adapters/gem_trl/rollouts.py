"""Episodes played inside a TRL trainer, and the rows they become."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from gem_core.chat import Renderer
from gem_core.core import Env
from gem_core.episode import Episode, TokenSequence
from gem_core.policies import Policy, Sampling
from gem_core.registration import make
from gem_core.rollout import Task, rollout
from gem_core.session import ContextMode, EpisodeSession, Generation, Limits, Prompt
from gem_trl.config import GemConfig

Array = npt.NDArray[Any]

#: Held-out evaluation uses the seeds from here on; training those below.
HELD_OUT_SEED = 2**31
#: Of a loop over several processes: (number of prompts here) -> largest number anywhere.
LargestAnywhere = Callable[[int], int]


@dataclass(frozen=True)
class Row:
    """One row of a training batch: a sequence and the episode (index in the batch) it belongs to."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    #: 1 = sampled by the policy and trained on.
    mask: list[int]
    #: None: filler that trains nothing.
    sequence: TokenSequence | None = None
    episode: int = -1


def training_seed(run_seed: int, step: int, batch: int, index: int) -> int:
    """The environment seed of one group (or episode) of a training batch: a hash below :data:`HELD_OUT_SEED`.

    It depends on the optimizer step and not on consumed random numbers, so a resumed run goes on with the same games.

    Args:
        run_seed: The trainer's.
        step: Optimizer updates made.
        batch: Batches generated since the last update.
        index: The group's place in the batch over all processes.
    """
    return random.Random(f"{run_seed}:{step}:{batch}:{index}").randrange(HELD_OUT_SEED)


class EpisodePlayer:
    """Plays batches of episodes, all in step with each other.

    Args:
        config: Limits, context and system prompt.
        make_env: Builds an environment; instances are reused. None = by the config's ``env_id``.
        renderer: Writes token ids.
    """

    def __init__(self, config: GemConfig, make_env: Callable[[], Env] | None, renderer: Renderer) -> None:
        self._by_id = make_env is None
        self._make_env = make_env or (lambda: make(config.env_id, **(config.env_kwargs or {})))
        self._renderer = renderer
        self._config = config
        self._envs: list[Env] = []
        self.limits = Limits(
            max_turns=config.max_turns,
            max_context_tokens=config.max_context_tokens,
            max_response_tokens=config.max_completion_length,
            max_tokens_per_turn=config.max_tokens_per_turn,
        )

    def sessions(
        self, seeds: Sequence[int], episode_ids: Sequence[str], group_ids: Sequence[str]
    ) -> list[EpisodeSession]:
        """One session a seed, not started yet; all earlier sessions must be over."""
        while len(self._envs) < len(seeds):
            self._envs.append(self._make_env())
        c = self._config
        return [
            EpisodeSession(
                env,
                self._renderer,
                seed=seed,
                limits=self.limits,
                context=cast(ContextMode, c.context),
                system_prompt=c.system_prompt,
                length_stop=cast(Literal["pass", "invalid"], c.length_stop),
                episode_id=episode_id,
                group_id=group_id,
                env_id=c.env_id or None,
            )
            for env, seed, episode_id, group_id in zip(self._envs, seeds, episode_ids, group_ids, strict=False)
        ]

    def play_apart(
        self, seeds: Sequence[int], episode_ids: Sequence[str], group_ids: Sequence[str], policy: Policy, executor: Any
    ) -> list[Episode]:
        """Plays one episode a seed with environments in an executor of their own, free-running."""
        c = self._config
        env: Any = c.env_id if self._by_id else self._make_env
        kwargs = (c.env_kwargs or {}) if self._by_id else {}
        tasks = [
            Task(env, seed=seed, episode_id=episode_id, group_id=group_id, kwargs=kwargs)
            for seed, episode_id, group_id in zip(seeds, episode_ids, group_ids, strict=True)
        ]
        return rollout(
            tasks,
            policy,
            self._renderer,
            concurrency=max(1, len(tasks)),
            executor=executor,
            limits=self.limits,
            context=c.context,
            system_prompt=c.system_prompt,
            length_stop=c.length_stop,
        )

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()
        self._envs.clear()


def play(sessions: Sequence[EpisodeSession], policy: Policy, largest_anywhere: LargestAnywhere | None = None) -> None:
    """Plays all sessions to their end, one batch of prompts a round.

    Args:
        sessions: Not started yet.
        policy: Answers each round's prompts.
        largest_anywhere: Where ``policy.generate`` is a collective call of several processes: every process then calls
            it equally often with equally many prompts, filled up with copies whose answers are dropped.
    """
    waiting = [(s, p) for s in sessions if (p := s.start()) is not None]
    while (n := largest_anywhere(len(waiting)) if largest_anywhere else len(waiting)) > 0:
        prompts = [p for _, p in waiting]
        filler = prompts[0] if prompts else Prompt([1], [], 1, "filler", 0)
        answers = policy.generate(prompts + [filler] * (n - len(prompts)))
        waiting = [(s, p) for (s, _), a in zip(waiting, answers, strict=False) if (p := s.submit(a)) is not None]


class VLLMPolicy:
    """Samples through TRL's own vLLM engine, colocated or served.

    Args:
        generation: ``trainer.vllm_generation``.
        max_new_tokens: For each turn, where the session's limits do not say less.
        stop_token_ids: End a turn.
        sampling: Temperature and the like; ``greedy`` is temperature 0.
    """

    def __init__(
        self, generation: Any, *, max_new_tokens: int, stop_token_ids: Sequence[int], sampling: Sampling
    ) -> None:
        self._generation = generation
        self._max_new_tokens = max_new_tokens
        self._stop = frozenset(stop_token_ids)
        self._sampling = sampling

    def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`gem_core.policies.Policy`."""
        engine, how = self._generation, self._sampling
        rooms = [min(self._max_new_tokens, p.max_new_tokens or self._max_new_tokens) for p in prompts]
        before = engine.temperature, engine.max_completion_length
        engine.temperature = 0.0 if how.greedy else how.temperature
        engine.max_completion_length = max(rooms)
        try:
            _, completions, logprobs, *_ = engine.generate(
                prompts=[p.token_ids for p in prompts], images=None, num_generations=1
            )
        finally:
            engine.temperature, engine.max_completion_length = before
        answers = []
        for ids, lps, room in zip(completions, logprobs, rooms, strict=True):
            ids = [int(t) for t in ids[:room]]
            # One list a token, the sampled token's first, in newer versions; one number in older ones.
            lps = [(x[0] if isinstance(x, (list, tuple)) else x) for x in lps[:room]]
            known = None if any(x is None for x in lps) else [float(x) for x in lps]
            answers.append(Generation(ids, known, "stop" if ids and ids[-1] in self._stop else "length"))
        return answers


def rows_of(episodes: Sequence[Episode], keep: Sequence[bool], filler_id: int) -> list[Row]:
    """Lays episodes out as rows, one a sequence; an episode without any token becomes a row that trains nothing.

    Args:
        episodes: The batch.
        keep: False: the episode's rows are masked.
        filler_id: A token for rows that train nothing (the end token: TRL reads a row's last one).
    """
    rows: list[Row] = []
    for index, (episode, kept) in enumerate(zip(episodes, keep, strict=True)):
        sequences = [s for s in episode.to_sequences() if s.response_ids and s.prompt_ids]
        for s in sequences:
            mask = s.response_mask if kept else [0] * len(s.response_mask)
            rows.append(Row(s.prompt_ids, s.response_ids, s.logprobs, mask, s, index))
        if not sequences:
            rows.append(filler_row(filler_id))
    return rows


def spread_over_rows(rows: Sequence[Row], per_turn: Sequence[Sequence[float] | Array], width: int) -> Array:
    """Gives each sampled token its turn's value.

    Args:
        rows: As :func:`rows_of` made them.
        per_turn: For each episode one value a turn, shape (turns,).
        width: Columns of the batch.

    Returns:
        float32 of shape (rows, width), 0.0 on environment tokens, padding and filler.
    """
    out = np.zeros((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows):
        if row.sequence is not None:
            values = row.sequence.spread([float(a) for a in per_turn[row.episode]])
            out[i, : len(values)] = values
    return out


def filler_row(token_id: int) -> Row:
    """A row that trains nothing."""
    return Row([token_id], [token_id], [0.0], [0])

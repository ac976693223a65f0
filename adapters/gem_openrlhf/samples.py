"""``GemSamplesGenerator``: OpenRLHF's, which keeps what an episode is more than one dict of OpenRLHF's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

from gem_core.episode import StopReason
from gem_openrlhf.output import KEY, EpisodeRecord, SequenceRecord

#: Keys of ``Experience.info``: the row's :class:`SequenceRecord`, and the further sequences of the row's episode.
RECORD, MORE = "gem_record", "gem_more"


class GemSamplesGenerator(SamplesGenerator):  # type: ignore[misc]  # OpenRLHF has no type information
    """Carries each sample's :class:`~gem_openrlhf.output.SequenceRecord` in ``Experience.info``.

    An episode stays one sample until :func:`rows` lays out its further sequences, so that OpenRLHF's counting of
    samples (batches, groups, evaluation, dynamic filtering) is that of episodes.
    """

    #: Metrics of the last evaluation.
    eval_metrics: dict[str, float]

    def _process_response_into_experience(self, response: dict[str, Any], **generate_kwargs: Any) -> Experience:
        experience = super()._process_response_into_experience(response, **generate_kwargs)
        extra = response.get(KEY)
        if extra is None:
            raise ValueError(
                "the agent returned a sample without turns: with gem_openrlhf.launch, --train.agent_func_path must "
                "define an AgentExecutor that is gem_openrlhf.GemAgentExecutor or a subclass of it"
            )
        more = [self._process_response_into_experience(r, **generate_kwargs) for r in extra["more"]]
        record: SequenceRecord = extra["record"]
        experience.info[RECORD] = [replace(record, turns=_fitting(record.turns, experience.action_mask.size(1) + 1))]
        experience.info[MORE] = [more]
        return experience

    def generate_eval_samples(self, **generate_kwargs: Any) -> list[Experience]:
        samples: list[Experience] = super().generate_eval_samples(**generate_kwargs)
        self.eval_metrics = metrics(episodes(samples))
        return samples


def _fitting(turns: Sequence[tuple[int, int, int]], length: int) -> tuple[tuple[int, int, int], ...]:
    """Turns within the tokens that OpenRLHF kept (``--data.max_len``; an episode of ours is within it already)."""
    return tuple((t, first, min(end, length)) for t, first, end in turns if first < length)


def rows(samples: Sequence[Experience], multiple: int) -> list[Experience]:
    """One ``Experience`` of batch size 1 for each training sequence.

    Where an episode has several, rows without a loss fill the batch up to a multiple of ``multiple``, because ranks
    that hold different numbers of rows would wait for each other forever.
    """
    out: list[Experience] = []
    several = False
    for sample in samples:
        (more,) = sample.info.pop(MORE)
        for row in more:
            row.info.pop(MORE)
        several |= bool(more)
        out += [sample, *more]
    missing = -len(out) % multiple if several else 0
    if missing:
        shortest = min(out, key=lambda e: int(e.sequences.size(1)))
        out += [_filler(shortest) for _ in range(missing)]
    return out


def _filler(row: Experience) -> Experience:
    info = {k: torch.zeros_like(v) if isinstance(v, torch.Tensor) else v for k, v in row.info.items()}
    return replace(
        row,
        action_mask=torch.zeros_like(row.action_mask),
        rewards=torch.zeros_like(row.rewards),
        response_length=torch.zeros_like(row.response_length),
        truncated=torch.zeros_like(row.truncated),
        info={**info, RECORD: [SequenceRecord(None)]},
    )


def episodes(samples: Sequence[Experience]) -> list[EpisodeRecord]:
    """The episodes that the samples or rows are of, each once, in order."""
    found = {r.episode.episode_id: r.episode for s in samples for r in s.info[RECORD] if r.episode is not None}
    return list(found.values())


def metrics(batch: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Means over episodes: ``gem/success`` (over those that report it), ``gem/return``, ``gem/turns``, ``gem/failed``,
    ``gem/sampled_tokens`` and the shares ``gem/stop/<reason>``; in a mix success and return of each environment too."""
    if not batch:
        return {}
    out = _means(batch, "gem/")
    out["gem/turns"] = math.fsum(len(e.rewards) for e in batch) / len(batch)
    out["gem/sampled_tokens"] = math.fsum(e.sampled_tokens for e in batch) / len(batch)
    out["gem/failed"] = math.fsum(e.stop_reason.failed for e in batch) / len(batch)
    for reason in StopReason:
        if share := math.fsum(e.stop_reason is reason for e in batch) / len(batch):
            out[f"gem/stop/{reason.value}"] = share
    env_ids = sorted({e.env_id for e in batch})
    if len(env_ids) > 1:
        for env_id in env_ids:
            out |= _means([e for e in batch if e.env_id == env_id], f"gem/{env_id}/")
    return out


def _means(batch: Sequence[EpisodeRecord], prefix: str) -> dict[str, float]:
    out = {f"{prefix}return": math.fsum(e.total_reward for e in batch) / len(batch)}
    judged = [e.success for e in batch if e.success is not None]
    if judged:
        out[f"{prefix}success"] = math.fsum(judged) / len(judged)
    return out

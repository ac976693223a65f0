"""The vocabulary of a rollout: ``Turn``, ``Episode``, ``TokenSequence``. Nothing else crosses a module border.

An :class:`Episode` stores every token once, in the order the policy saw or sampled it, so its size is linear in its
tokens; :meth:`Episode.to_sequences` lays them out as the training sequences that adapters translate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, Literal

FinishReason = Literal["stop", "length", "abort"]


class StopReason(str, Enum):
    """Why an episode ended. Only ``TERMINATED`` is the task's own end; the rest are limits and faults."""

    #: The task's rules ended it (solved, failed, malformed action).
    TERMINATED = "terminated"
    #: The environment's own limit.
    TRUNCATED = "truncated"
    #: ``Limits.max_turns``.
    MAX_TURNS = "max_turns"
    #: The next prompt would leave no room within ``Limits.max_context_tokens``.
    CONTEXT_LENGTH = "context_length"
    #: ``Limits.wall_clock_s``.
    WALL_CLOCK = "wall_clock"
    #: The engine gave up on a generation.
    ABORTED = "aborted"
    #: The environment raised, hung or died; ``Episode.error`` says how.
    ENV_ERROR = "env_error"
    #: The policy or its engine raised; ``Episode.error`` says how.
    POLICY_ERROR = "policy_error"

    @property
    def failed(self) -> bool:
        """True where the episode is a fault's victim, not a sample of the policy in its task."""
        return self in (StopReason.ABORTED, StopReason.ENV_ERROR, StopReason.POLICY_ERROR)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Turn:
    """One action of the policy and what the environment made of it."""

    #: What the policy was shown for this turn (``info["suffix"]`` included).
    observation: str
    #: The text that the environment was given.
    action: str
    #: Reward of this action.
    reward: float
    #: Tokens put before this turn's sampled ones: the whole prompt where ``new_sequence``, else only what came after
    #: the previous turn's sampled tokens (end-of-turn tokens the policy did not sample included).
    context_ids: tuple[int, ...] = ()
    #: What the policy sampled, end-of-turn token included if sampled.
    response_ids: tuple[int, ...] = ()
    #: Log probability of each sampled token under the sampling policy; empty where the engine gave none.
    logprobs: tuple[float, ...] = ()
    #: The context was not an extension of what came before: a new training sequence starts here.
    new_sequence: bool = True
    finish_reason: FinishReason = "stop"
    #: What the environment reported with the step's result (JSON-able values of ``info`` only).
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.logprobs and len(self.logprobs) != len(self.response_ids):
            raise ValueError(f"{len(self.logprobs)} log probabilities for {len(self.response_ids)} sampled tokens")


@dataclass(frozen=True)
class TokenSequence:
    """One training sequence: ``prompt_ids + response_ids`` is exactly what the policy was given and sampled.

    All lists but ``prompt_ids`` have the length of ``response_ids``.
    """

    prompt_ids: list[int]
    #: Sampled and environment tokens after the prompt.
    response_ids: list[int]
    #: 1 = sampled by the policy, 0 = environment.
    response_mask: list[int]
    #: Under the sampling policy; 0.0 on environment tokens, never NaN. 0.0 too on a turn for which the engine gave
    #: none; ``has_logprobs`` is then False for the whole sequence.
    logprobs: list[float]
    #: The turn (index into ``Episode.turns``) that sampled the token; -1 on environment tokens.
    turn_index: list[int]
    #: Each turn's reward on its last sampled token, 0.0 elsewhere; over all sequences they add up to the return.
    rewards: list[float]
    episode_id: str
    group_id: str
    stop_reason: StopReason
    has_logprobs: bool = True

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def input_ids(self) -> list[int]:
        return self.prompt_ids + self.response_ids

    @property
    def turns(self) -> list[int]:
        """The turns whose sampled tokens are in this sequence, in order."""
        return sorted({t for t in self.turn_index if t >= 0})

    def spread(self, per_turn: Sequence[float]) -> list[float]:
        """Gives each sampled token its turn's value and environment tokens 0.0.

        Args:
            per_turn: One value for each turn of the episode, shape (turns,).
        """
        return [float(per_turn[t]) if t >= 0 else 0.0 for t in self.turn_index]


@dataclass
class Episode:
    """One episode as it was played."""

    env_id: str
    seed: int | None = None
    #: Unique within a run.
    episode_id: str = ""
    #: Episodes of one group start from the same state (same env and seed); group-relative advantages compare them.
    group_id: str = ""
    turns: list[Turn] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    stop_reason: StopReason | None = None
    #: The task was solved, as far as the environment says so.
    success: bool | None = None
    #: Why it failed, where ``stop_reason.failed``.
    error: str | None = None
    #: What the environment said after the last action (never shown to the policy).
    final_observation: str = ""
    #: Anything JSON-able that the caller wants kept with the episode (policy version, split, ...).
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.stop_reason is not None

    @property
    def failed(self) -> bool:
        """See :attr:`StopReason.failed`."""
        return self.stop_reason is not None and self.stop_reason.failed

    @property
    def rewards(self) -> list[float]:
        """One reward a turn, shape (turns,)."""
        return [t.reward for t in self.turns]

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return math.fsum(self.rewards)

    def returns(self, gamma: float = 1.0) -> list[float]:
        """Discounted return from each turn on, shape (turns,); see :func:`gem_core.advantages.discounted_returns`."""
        out: list[float] = []
        acc = 0.0
        for reward in reversed(self.rewards):
            acc = reward + gamma * acc
            out.append(acc)
        return out[::-1]

    @property
    def num_sampled_tokens(self) -> int:
        return sum(len(t.response_ids) for t in self.turns)

    def to_sequences(self) -> list[TokenSequence]:
        """Lays the episode out as training sequences; one unless a context was rebuilt or rewritten.

        A turn that sampled no token has no place for its reward: it goes to the nearest earlier sampled token (the
        nearest later one if there is none before), so that rewards still add up to the return. An episode in which no
        turn sampled a token has nothing to train and its sequences carry no reward.

        Raises:
            ValueError: the episode was played by text only and has no tokens.
        """
        if any(t.new_sequence and not t.context_ids for t in self.turns):
            raise ValueError(
                f"episode {self.episode_id!r} has turns without token ids: give the EpisodeSession a renderer "
                "(a tokenizer), or train from the text"
            )
        builders: list[_SequenceBuilder] = []
        for index, turn in enumerate(self.turns):
            if turn.new_sequence or not builders:
                builders.append(_SequenceBuilder(list(turn.context_ids)))
            else:
                builders[-1].environment(turn.context_ids)
            builders[-1].sampled(turn, index)
        _place_rewards(builders, self.turns)
        return [
            TokenSequence(
                prompt_ids=b.prompt,
                response_ids=b.ids,
                response_mask=b.mask,
                logprobs=b.logprobs,
                turn_index=b.turn_index,
                rewards=b.rewards,
                episode_id=self.episode_id,
                group_id=self.group_id,
                stop_reason=self.stop_reason or StopReason.TERMINATED,
                has_logprobs=b.has_logprobs,
            )
            for b in builders
        ]

    # -- JSON -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["turns"] = [asdict(t) for t in self.turns]
        out["stop_reason"] = None if self.stop_reason is None else self.stop_reason.value
        return out

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Episode:
        """The inverse of :meth:`to_dict`.

        Raises:
            ValueError: an unknown or missing field, named.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown Episode fields {unknown}; known are {sorted(known)}")
        if "env_id" not in data:
            raise ValueError("an Episode needs the field 'env_id'")
        data = dict(data)
        data["turns"] = [_turn(t) for t in data.get("turns", [])]
        if data.get("stop_reason") is not None:
            data["stop_reason"] = StopReason(data["stop_reason"])
        return cls(**data)

    def to_json(self) -> str:
        """One line of JSON that encodes as UTF-8; NaN and infinities are refused."""
        data = self.to_dict()
        line = json.dumps(data, ensure_ascii=False, allow_nan=False)
        # A lone surrogate (half of a character, from a text cut in UTF-16) has no UTF-8 form; escaped it survives.
        return line if _encodes(line) else json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Episode:
        return cls.from_dict(json.loads(line))


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _SequenceBuilder:
    def __init__(self, prompt: list[int]) -> None:
        self.prompt = prompt
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.turn_index: list[int] = []
        self.rewards: list[float] = []
        self.has_logprobs = True
        #: Position of each turn's last sampled token.
        self.last_token: dict[int, int] = {}

    def environment(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.turn_index += [-1] * len(ids)
        self.rewards += [0.0] * len(ids)

    def sampled(self, turn: Turn, index: int) -> None:
        n = len(turn.response_ids)
        self.ids += turn.response_ids
        self.mask += [1] * n
        self.logprobs += turn.logprobs or [0.0] * n
        self.has_logprobs &= bool(turn.logprobs) or n == 0
        self.turn_index += [index] * n
        self.rewards += [0.0] * n
        if n:
            self.last_token[index] = len(self.ids) - 1


def _place_rewards(builders: list[_SequenceBuilder], turns: Sequence[Turn]) -> None:
    """Puts each turn's reward on its last sampled token (or the nearest one, see :meth:`Episode.to_sequences`)."""
    last_token = {turn: (b, position) for b in builders for turn, position in b.last_token.items()}
    if not last_token:
        return
    first = min(last_token)
    target = last_token[first]
    for index, turn in enumerate(turns):
        target = last_token.get(index, target)
        builder, position = target
        builder.rewards[position] += turn.reward


def _turn(data: dict[str, Any]) -> Turn:
    known = {f.name for f in fields(Turn)}
    if unknown := sorted(set(data) - known):
        raise ValueError(f"unknown Turn fields {unknown}; known are {sorted(known)}")
    data = dict(data)
    for name in ("context_ids", "response_ids", "logprobs"):
        data[name] = tuple(data.get(name, ()))
    return Turn(**data)


def summarize(episodes: Iterable[Episode]) -> dict[str, float]:
    """Batch metrics: ``episodes``, ``success``, ``return``, ``turns``, ``sampled_tokens``, ``failed`` and one
    ``stop/<reason>`` share for each reason met. Means over episodes; ``success`` over those that report it."""
    batch = list(episodes)
    n = len(batch)
    if not n:
        return {"episodes": 0.0}

    def mean(value: Callable[[Episode], float], among: Sequence[Episode] = batch) -> float:
        return math.fsum(value(e) for e in among) / len(among) if among else math.nan

    out = {
        "episodes": float(n),
        "return": mean(lambda e: e.total_reward),
        "turns": mean(lambda e: len(e.turns)),
        "sampled_tokens": mean(lambda e: e.num_sampled_tokens),
        "failed": mean(lambda e: float(e.failed)),
    }
    judged = [e for e in batch if e.success is not None]
    if judged:
        out["success"] = mean(lambda e: float(bool(e.success)), judged)
    for reason in StopReason:
        share = mean(lambda e, r=reason: float(e.stop_reason is r))  # type: ignore[misc]
        if share:
            out[f"stop/{reason.value}"] = share
    return out

"""``EpisodeSession``: one episode as a state machine with no I/O of its own.

Whoever owns the loop drives it::

    prompt = session.start()
    while prompt is not None:
        prompt = session.submit(generate(prompt))
    session.episode

It owns the environment, the rendering, the token accounting, the limits and the reason the episode stopped; there is no
second copy of this logic in any adapter. Where the environment lives elsewhere (a worker process, a vectorised
environment), :meth:`EpisodeSession.act` and :meth:`EpisodeSession.observe` are the two halves of ``submit``.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gem_core.chat import Context, Message, Renderer
from gem_core.core import Env, Info, reset_env
from gem_core.episode import Episode, FinishReason, StopReason, Turn

logger = logging.getLogger(__name__)

#: ``"append"``: one growing conversation. ``"rebuild"``: each observation is the whole prompt of its turn (as GEM's
#: ``concat`` wrappers write it), one training sequence a turn.
ContextMode = Literal["append", "rebuild"]


@dataclass(frozen=True)
class Limits:
    """Limits of an episode; None = none. Reaching one truncates the episode with its own stop reason."""

    max_turns: int | None = None
    #: Prompt and everything after it, in one sequence (the engine's context window).
    max_context_tokens: int | None = None
    #: The prompt that a sequence starts with (verl's ``max_prompt_length``).
    max_prompt_tokens: int | None = None
    #: Everything after the first prompt of a sequence, environment tokens included (verl's ``max_response_length``).
    max_response_tokens: int | None = None
    #: Sampled in one turn.
    max_tokens_per_turn: int | None = None
    #: Seconds from ``start``; looked at between turns.
    wall_clock_s: float | None = None
    #: How often one turn may be resumed after an aborted generation.
    max_resumes: int | None = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"Limits.{name} must be positive or None, got {value!r}")


@dataclass(frozen=True)
class Prompt:
    """What to generate from. Token engines read ``token_ids``, chat endpoints ``messages``."""

    #: The whole prompt; empty in a session without a renderer.
    token_ids: list[int]
    #: The conversation, for engines that take text.
    messages: list[Message]
    #: Most tokens that may be sampled; None = no limit but the engine's own.
    max_new_tokens: int | None
    episode_id: str
    turn: int
    #: How many leading ``token_ids`` the policy has seen or sampled before in this episode (a KV cache's length).
    cached_tokens: int = 0
    #: Images of the current observation, where the environment gives any (``info["images"]``).
    images: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Generation:
    """What the policy sampled for one :class:`Prompt`."""

    #: Sampled ids, the end-of-turn token included if it was sampled.
    token_ids: Sequence[int] = ()
    #: Log probability of each under the sampling distribution.
    logprobs: Sequence[float] | None = None
    #: ``"length"``: cut by a token limit. ``"abort"``: interrupted (a weight update, say), to be resumed.
    finish_reason: FinishReason = "stop"
    #: The text, where the engine knows it better than the tokenizer; required in a session without a renderer.
    text: str | None = None


class EpisodeSession:
    """Plays one episode of ``env``.

    Args:
        env: The environment; None where :meth:`begin`, :meth:`act` and :meth:`observe` are used.
        renderer: Writes token ids; None for engines that take and give text only (then there are no sequences).
        seed: For ``env.reset``.
        options: For ``env.reset``.
        limits: See :class:`Limits`.
        context: See :data:`ContextMode`.
        system_prompt: Put before the first observation.
        length_stop: What the environment gets for an answer cut by a token limit: ``"pass"`` its text,
            ``"invalid"`` an empty action (the paper's baselines).
        on_env_error: ``"record"``: an exception of the environment ends the episode as failed, with the reason in
            ``episode.error``; ``"raise"``: it propagates after being recorded.
        episode_id: Unique in the run; random if None.
        group_id: See :class:`~gem_core.episode.Episode`; the episode's own id if None.
        env_id: For the record, where ``env`` does not know its id.
        metadata: For ``episode.metadata``.
    """

    def __init__(
        self,
        env: Env | None,
        renderer: Renderer | None = None,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        limits: Limits | None = None,
        context: ContextMode = "append",
        system_prompt: str | None = None,
        length_stop: Literal["pass", "invalid"] = "pass",
        on_env_error: Literal["record", "raise"] = "record",
        episode_id: str | None = None,
        group_id: str | None = None,
        env_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _one_of("context", context, ("append", "rebuild"))
        _one_of("length_stop", length_stop, ("pass", "invalid"))
        _one_of("on_env_error", on_env_error, ("record", "raise"))
        self.env = env
        self.renderer = renderer
        self.options = options
        self.limits = limits or Limits()
        self.context = context
        self.length_stop = length_stop
        self.on_env_error = on_env_error
        episode_id = episode_id or uuid.uuid4().hex
        if env_id is None:
            env_id = getattr(env, "env_id", "") or (type(env).__name__ if env is not None else "")
        self.episode = Episode(
            env_id=env_id,
            seed=seed,
            episode_id=episode_id,
            group_id=group_id if group_id is not None else episode_id,
            metadata=dict(metadata or {}),
        )
        self._system: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._messages: list[Message] = []
        self._clock = clock
        self._started_at: float | None = None
        self._prompt: Prompt | None = None
        self._action: str | None = None  # given out by act(), not yet observed
        # The current sequence: what the policy has seen and sampled, and where the sequence's first prompt ends.
        self._ids: list[int] = []
        self._prompt_length = 0
        self._context = Context([], True)
        self._observation = ""
        self._images: tuple[Any, ...] = ()
        # The current turn's samples so far; more than one piece where a generation was aborted and resumed.
        self._sampled: list[int] = []
        self._logprobs: list[float] | None = []
        self._text: list[str] = []
        self._finish: FinishReason = "stop"
        self._resumes = 0

    # -- driving ----------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.episode.done

    @property
    def started(self) -> bool:
        return self._started_at is not None

    @property
    def prompt(self) -> Prompt | None:
        """The prompt waiting for :meth:`submit`; None before the start, while the environment acts and at the end."""
        return self._prompt

    def start(self) -> Prompt | None:
        """Resets the environment. None: the episode is over already (a failed reset, a prompt beyond the limits)."""
        env = self._require_env()
        try:
            observation, info = reset_env(env, self.episode.seed, self.options)
        except Exception as e:
            self.begin_failed(f"reset: {type(e).__name__}: {e}")
            logger.warning("episode %s: %s", self.episode.episode_id, self.episode.error, exc_info=True)
            if self.on_env_error == "raise":
                raise
            return None
        return self.begin(observation, info)

    def submit(self, generation: Generation) -> Prompt | None:
        """Gives the policy's answer to the environment; None when the episode is over.

        An aborted generation is kept, and the prompt returned asks for the rest of the same turn.
        """
        env = self._require_env()
        action = self.act(generation)
        if action is None:
            return self._prompt
        try:
            observation, reward, terminated, truncated, info = env.step(action)
        except Exception as e:
            self.fail(StopReason.ENV_ERROR, f"step: {type(e).__name__}: {e}")
            logger.warning("episode %s: %s", self.episode.episode_id, self.episode.error, exc_info=True)
            if self.on_env_error == "raise":
                raise
            return None
        return self.observe(observation, reward, terminated, truncated, info)

    # -- the halves, for environments that live elsewhere -----------------------------------------------------

    def begin(self, observation: str, info: Info) -> Prompt | None:
        """Takes the result of a reset that happened elsewhere."""
        if self._started_at is not None:
            raise RuntimeError(f"episode {self.episode.episode_id} was started already")
        self._started_at = self._clock()
        return self._next_prompt(observation, info)

    def begin_failed(self, error: str) -> None:
        """The reset failed elsewhere."""
        self._started_at = self._clock()
        self._stop(StopReason.ENV_ERROR, error)

    def act(self, generation: Generation) -> str | None:
        """Takes the policy's answer and returns the action for the environment.

        None: there is no action yet, because the generation was aborted; ``prompt`` asks for the rest of the turn (or
        is None where the turn was resumed too often and the episode is over).
        """
        prompt = self._prompt
        if prompt is None:
            state = (
                "is over" if self.done else "waits for the environment" if self._action is not None else "not started"
            )
            raise RuntimeError(f"episode {self.episode.episode_id} {state}; it takes no generation now")
        ids = list(map(int, generation.token_ids))
        if generation.logprobs is not None and len(generation.logprobs) != len(ids):
            raise ValueError(f"{len(generation.logprobs)} log probabilities for {len(ids)} sampled tokens")
        if self.renderer is None and generation.text is None:
            raise ValueError("a session without a renderer needs Generation.text")
        self._sampled += ids
        if generation.logprobs is None:
            self._logprobs = None if ids else self._logprobs
        elif self._logprobs is not None:
            self._logprobs += map(float, generation.logprobs)
        if generation.text is not None:
            self._text.append(generation.text)
        self._finish = generation.finish_reason
        if generation.finish_reason == "abort" and self._resume(prompt):
            return None
        if self.done:  # resumed too often
            return None
        self._prompt = None
        self._action = self._read_action()
        return self._action

    def observe(self, observation: str, reward: float, terminated: bool, truncated: bool, info: Info) -> Prompt | None:
        """Takes the result of a step that happened elsewhere."""
        if self._action is None:
            raise RuntimeError(f"episode {self.episode.episode_id} has no action waiting for a result")
        reward = float(reward)
        if not math.isfinite(reward):
            self.fail(StopReason.ENV_ERROR, f"step: the environment's reward is {reward}")
            return None
        self._record(reward, info)
        self.episode.terminated, self.episode.truncated = bool(terminated), bool(truncated)
        success = info.get("success", info.get("correct"))
        if success is not None:
            self.episode.success = bool(success)
        if terminated or truncated:
            self.episode.final_observation = observation
            self._stop(StopReason.TERMINATED if terminated else StopReason.TRUNCATED)
            return None
        if self.limits.max_turns is not None and len(self.episode.turns) >= self.limits.max_turns:
            self.episode.final_observation = observation
            self._stop(StopReason.MAX_TURNS)
            return None
        return self._next_prompt(observation, info)

    def fail(self, reason: StopReason, error: str) -> None:
        """Ends the episode by a fault: the environment's, the policy's or the engine's. A turn that was sampled
        already is kept, with reward 0.0."""
        if self.done:
            return
        if self._action is None and self._sampled:
            self._action = self._read_action()
        if self._action is not None:
            self._record(0.0, {"error": error})
        self._stop(reason, error)

    # -- inside -----------------------------------------------------------------------------------------------

    def _require_env(self) -> Env:
        if self.env is None:
            raise RuntimeError("this session has no env; drive it with begin(), act() and observe()")
        return self.env

    def _read_action(self) -> str:
        if self.length_stop == "invalid" and self._finish == "length":
            return ""
        return self._reply()

    def _reply(self) -> str:
        """The text of the turn's samples."""
        if not self._text and self.renderer is not None and self._sampled:
            self._text.append(self.renderer.decode(self._sampled))  # once: it takes as long as encoding
        return "".join(self._text)

    def _record(self, reward: float, info: Info) -> None:
        """Moves the current turn into the episode."""
        assert self._action is not None
        reply = self._reply()
        self.episode.turns.append(
            Turn(
                observation=self._observation,
                action=self._action,
                reward=reward,
                context_ids=tuple(self._context.ids),
                response_ids=tuple(self._sampled),
                logprobs=tuple(self._logprobs or ()),
                new_sequence=self._context.new_sequence,
                finish_reason=self._finish,
                info=_jsonable(info),
            )
        )
        self._ids += self._sampled
        self._messages.append({"role": "assistant", "content": reply})
        self._action, self._prompt = None, None

    def _next_prompt(self, observation: str, info: Info) -> Prompt | None:
        """Renders the next turn's context, or stops at a limit before anything of it is appended."""
        assert self._started_at is not None
        shown = with_suffix(observation, info)
        wall = self.limits.wall_clock_s
        if wall is not None and self._clock() - self._started_at >= wall:
            self.episode.final_observation = observation
            self._stop(StopReason.WALL_CLOCK)
            return None
        message: Message = {"role": "user", "content": shown}
        context = Context([], True)
        if self.renderer is not None:
            if not self._messages or self.context == "rebuild":
                context = Context(self.renderer.start([*self._system, message]), True)
            else:
                last = self._sampled[-1] if self._sampled else None
                context = self.renderer.extend(self._messages, shown, last)
        cached = 0 if context.new_sequence else len(self._ids)
        length = len(context.ids) + cached
        prompt_length = length if context.new_sequence else self._prompt_length
        room = self._room(length, prompt_length)
        if room is not None and room < 1:
            self.episode.final_observation = observation
            self._stop(StopReason.CONTEXT_LENGTH)
            return None
        if not self._messages or self.context == "rebuild":
            self._messages = [*self._system, message]
        else:
            self._messages.append(message)
        if context.new_sequence:
            self._ids = list(context.ids)
        else:
            self._ids += context.ids
        self._prompt_length, self._context = prompt_length, context
        self._observation = shown
        self._images = tuple(info.get("images") or ())
        self._sampled, self._logprobs, self._text, self._resumes = [], [], [], 0
        self._prompt = self._make_prompt(self._ids, room, cached)
        return self._prompt

    def _resume(self, prompt: Prompt) -> bool:
        """After an aborted generation: asks for the rest of the same turn. False where there is no rest to ask for."""
        self._resumes += 1
        ids = self._ids + self._sampled
        room = self._room(len(ids), self._prompt_length, already=len(self._sampled))
        if room is not None and room < 1:  # the turn's tokens are used up: the answer stands, cut by the limit
            self._finish = "length"
            return False
        if self.limits.max_resumes is not None and self._resumes > self.limits.max_resumes:
            self.fail(StopReason.ABORTED, f"a generation was aborted {self._resumes} times in one turn")
            return False
        self._prompt = self._make_prompt(ids, room, len(prompt.token_ids))
        return True

    def _make_prompt(self, ids: list[int], room: int | None, cached: int) -> Prompt:
        return Prompt(
            token_ids=list(ids),
            messages=list(self._messages),
            max_new_tokens=room,
            episode_id=self.episode.episode_id,
            turn=len(self.episode.turns),
            cached_tokens=cached,
            images=self._images,
        )

    def _room(self, length: int, prompt_length: int, already: int = 0) -> int | None:
        """Tokens that may still be sampled in this turn."""
        limits = self.limits
        room: list[int] = []
        if limits.max_tokens_per_turn is not None:
            room.append(limits.max_tokens_per_turn - already)
        if self.renderer is not None:
            if limits.max_prompt_tokens is not None and prompt_length > limits.max_prompt_tokens:
                room.append(0)
            if limits.max_context_tokens is not None:
                room.append(limits.max_context_tokens - length)
            if limits.max_response_tokens is not None:
                room.append(limits.max_response_tokens - (length - prompt_length))
        return min(room) if room else None

    def _stop(self, reason: StopReason, error: str | None = None) -> None:
        episode = self.episode
        episode.stop_reason, episode.error = reason, error
        if reason is not StopReason.TERMINATED:
            episode.truncated = True
        if episode.failed:
            episode.success = False if episode.success is not None else None
        self._prompt, self._action = None, None


def with_suffix(observation: str, info: Info) -> str:
    """The observation as the policy sees it: ``info["suffix"]`` on a line of its own after it."""
    suffix = info.get("suffix")
    if not suffix:
        return observation
    return f"{observation}{'' if observation.endswith(chr(10)) or not observation else chr(10)}{suffix}"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _jsonable(info: Info) -> dict[str, Any]:
    """The values of ``info`` that survive JSON; ``suffix`` is part of the next turn's observation already."""
    kept: dict[str, Any] = {}
    for key, value in info.items():
        if key in ("suffix", "images"):
            continue
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
            value = value.item()
        if value is None or isinstance(value, (str, bool, int)):
            kept[key] = value
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            continue
        kept[key] = value
    return kept

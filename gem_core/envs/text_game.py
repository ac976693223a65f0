"""What all text games share: boxed actions, turn limit, soft reward at the end, saved state."""

from __future__ import annotations

import abc
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from gem_core.core import Env, Info, StepTuple, rng_from_state, rng_state

Move = TypeVar("Move")

#: Reward of an action without any well-formed ``\boxed{...}``; it also ends the episode.
FORMAT_ERROR_REWARD = -0.1

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def boxed_contents(action: str) -> list[str]:
    r"""The contents of every ``\boxed{...}`` in ``action``, last first, stripped."""
    return [text.strip() for text in reversed(_BOXED.findall(action))]


@dataclass(frozen=True)
class Outcome:
    """What one well-formed move did."""

    observation: str
    reward: float = 0.0
    #: The game's own rules ended the episode.
    over: bool = False
    #: The game was won; implies ``over``.
    success: bool = False
    #: False for a well-formed move that the rules forbid: it costs the turn, nothing else.
    legal: bool = True


class TextGame(Env, Generic[Move]):
    r"""Base of the language games.

    The last well-formed ``\boxed{...}`` of an action counts. None: reward -0.1 and ``terminated``. An illegal move:
    reward 0.0, the turn is spent. The last turn without success: ``truncated``, with :meth:`soft_reward` added.

    ``info`` carries ``suffix`` (the current state and the request for the next move; absent once the episode is
    over), ``success``, ``action_is_valid`` (well-formed and legal) and ``turn``.

    Subclasses keep their state in JSON-able attributes named in ``state_fields`` and implement :meth:`deal`,
    :meth:`rules`, :meth:`request`, :meth:`parse`, :meth:`play` and :meth:`sample_move`.
    """

    #: Names of the attributes that :meth:`get_state` saves, besides the generators, the turn and the limits.
    state_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, max_turns: int | None) -> None:
        check_positive(max_turns=max_turns)
        self.max_turns = max_turns or 0
        self.turn = 0
        self._playing = False

    # -- what a game defines ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def deal(self) -> None:
        """Draws a new game from ``self.rng`` and sets ``self.max_turns`` where it is random."""

    @abc.abstractmethod
    def rules(self) -> str:
        """The first observation: the rules, the parameters and the form of an action."""

    @abc.abstractmethod
    def request(self) -> str:
        """The current state and the request for the next move (``info["suffix"]``)."""

    @abc.abstractmethod
    def parse(self, content: str) -> Move | None:
        """Reads the inside of one box; None where it is not of the game's form (legality is not its business)."""

    @abc.abstractmethod
    def play(self, move: Move) -> Outcome:
        """Plays a well-formed move."""

    @abc.abstractmethod
    def sample_move(self) -> str:
        """A well-formed move, the inside of its box, drawn from ``self.action_rng``."""

    def soft_reward(self, outcome: Outcome) -> float:
        """What the last turn adds when it ends without success; ``outcome`` is that turn's."""
        return 0.0

    @abc.abstractmethod
    def format_hint(self) -> str:
        r"""The form of an action, such as ``\boxed{row col}``."""

    # -- the contract -----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        if options:
            raise ValueError(f"{type(self).__name__}.reset() takes no options, got {sorted(options)}")
        if seed is not None:
            self.seed(seed)
        self.turn = 0
        self.deal()
        self._playing = True
        return self.rules(), self._info(success=False, valid=True)

    def step(self, action: str) -> StepTuple:
        if not self._playing:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}")
        self.turn += 1
        move = next((m for c in boxed_contents(action) if (m := self.parse(c)) is not None), None)
        if move is None:
            self._playing = False
            text = f"No answer of the form {self.format_hint()} was found, so the game ends here."
            return text, FORMAT_ERROR_REWARD, True, False, self._info(success=False, valid=False)
        outcome = self.play(move)
        over = outcome.over or outcome.success
        truncated = not over and self.turn >= self.max_turns
        reward, text = outcome.reward, outcome.observation
        if truncated:
            reward += self.soft_reward(outcome)
            text = f"{text} That was the last of {self.max_turns} turns; the game ends unsolved."
        self._playing = not (over or truncated)
        return text, reward, over, truncated, self._info(success=outcome.success, valid=outcome.legal)

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.sample_move()}}}"

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: getattr(self, name) for name in self.state_fields}
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "turn": self.turn,
            "max_turns": self.max_turns,
            "playing": self._playing,
            "game": _copy(state),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self.turn, self.max_turns, self._playing = state["turn"], state["max_turns"], state["playing"]
        for name, value in _copy(state["game"]).items():
            setattr(self, name, value)

    def _info(self, *, success: bool, valid: bool) -> Info:
        info: Info = {"success": success, "action_is_valid": valid, "turn": self.turn}
        if self._playing:
            info["suffix"] = self.request()
        return info


def _copy(value: Any) -> Any:
    """A deep copy of JSON-able values (several times faster than ``copy.deepcopy``)."""
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(v) for v in value]
    return value


def check_positive(**values: int | None) -> None:
    """Raises ValueError naming the first value that is neither None nor a positive int."""
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} must be a positive integer or None (drawn at each reset), got {value!r}")


def check_range(smallest: int, largest: int, **values: int | None) -> None:
    """Raises ValueError naming the first value that is neither None nor an int from ``smallest`` to ``largest``."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
            raise ValueError(f"{name} must be an integer from {smallest} to {largest}, got {value!r}")


def check_flag(**values: bool) -> None:
    """Raises ValueError naming the first value that is not a bool."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")

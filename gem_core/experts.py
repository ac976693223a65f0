"""Scripted experts: good play from the conversation alone, for warm starts, demonstrations and upper bounds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from gem_core.chat import Message
from gem_core.core import Env
from gem_core.registration import spec

#: From the conversation (its last message is the current observation) to an action.
Expert = Callable[[Sequence[Message], random.Random], str]


def expert(env_id: str) -> Expert:
    """Returns the expert for an environment's game.

    Raises:
        ValueError: there is none; the message names the games that have one.
    """
    name, experts = _name(env_id), _experts()
    if name not in experts:
        raise ValueError(f"no expert plays {env_id!r}; there are experts for {', '.join(sorted(experts))}")
    return experts[name]


def demonstrator(env_id: str) -> Expert | None:
    """Returns a player that shows which actions make sense without playing its best, for warm starts.

    The expert itself where a game has no such player; None where it has neither.
    """
    name = _name(env_id)
    return _DEMONSTRATORS.get(name) or _experts().get(name)


def register_expert(name: str, player: Expert) -> None:
    """Adds the expert of a game of your own.

    Args:
        name: The game's name in its ids: ``Maze`` for ``mine:Maze-v0-easy``.
        player: From the conversation and a generator to an action.

    Raises:
        ValueError: the game has an expert already, or ``player`` is not callable.
    """
    if not callable(player):
        raise ValueError(f"an expert is a function of (messages, rng), got {player!r}")
    if name in _experts():
        raise ValueError(f"{name!r} has an expert already")
    _EXPERTS[name] = player


def oracle(env: Env) -> str | None:
    """Returns the next action of a perfect game, with sight of what the env hides; None where it cannot be won.

    Raises:
        ValueError: there is no oracle for this environment.
    """
    from gem_core.envs.game_env.oracles import oracle_action

    return oracle_action(env)


def _experts() -> dict[str, Expert]:
    # These games load only where an expert is asked for.
    from gem_core.envs.game_env import board_experts, puzzle_experts

    return {**_EXPERTS, **board_experts.EXPERTS, **puzzle_experts.EXPERTS}


def _name(env_id: str) -> str:
    return spec(env_id).id.split(":")[-1].split("-v")[0]


def guess_the_number_bounds(messages: Sequence[Message]) -> tuple[int, int]:
    """The smallest and largest number that agree with every hint so far."""
    low, high = 0, 0
    for message in messages:
        if message["role"] != "user":
            continue
        text = message["content"]
        if found := re.search(r"number between (-?\d+) and (-?\d+)", text):
            low, high = int(found[1]), int(found[2])
        for direction, n in re.findall(r"number is (higher|lower) than (-?\d+)", text):
            low, high = (max(low, int(n) + 1), high) if direction == "higher" else (low, min(high, int(n) - 1))
    return low, high


def bisect_the_number(messages: Sequence[Message], rng: random.Random) -> str:
    """The middle of what is left: the fewest guesses in the worst case."""
    low, high = guess_the_number_bounds(messages)
    return f"\\boxed{{{(low + high) // 2}}}"


def consistent_number(messages: Sequence[Message], rng: random.Random) -> str:
    """Any number that agrees with the hints, all alike."""
    return f"\\boxed{{{rng.randint(*guess_the_number_bounds(messages))}}}"


_EXPERTS: dict[str, Expert] = {"GuessTheNumber": bisect_the_number}
_DEMONSTRATORS: dict[str, Expert] = {"GuessTheNumber": consistent_number}

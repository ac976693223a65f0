"""One seat of a multi-agent environment as a plain environment; given policies play the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from gem_core.core import Env, Info, StepTuple, check_keywords, reset_env
from gem_core.multiagent.multi_agent_env import MultiAgentEnv

ViewT = TypeVar("ViewT", bound="SeatView")

#: A game whose opponents end it before the learner's first turn is dealt again, at most so often.
_MAX_DEALS = 100


class Opponent(Protocol):
    """Plays a seat: from what it sees to its action."""

    def __call__(self, observation: str, info: Info) -> str: ...


class SeatView(Env):
    """Plays one seat of ``game``; every step ends when it is that seat's turn again or its episode is over.

    The reward of a step is all that the seat got until then, the opponents' moves included. ``info["seat"]`` names the
    seat. The same seed and actions give the same episode as long as the opponents are deterministic or draw from the
    game's generator, as the named ones do.

    Args:
        game: The environment; the view owns it.
        seat: One of ``game.possible_agents``, or ``"random"`` to draw one at each reset.
        opponent: ``"random"``, ``"scripted"`` (the game's own good player), a callable ``(observation, info) ->
            action``, or a dict of these by seat.
    """

    def __init__(
        self,
        game: MultiAgentEnv,
        seat: str = "random",
        opponent: str | Opponent | Mapping[str, str | Opponent] = "random",
    ) -> None:
        self.game = game
        if seat != "random" and seat not in game.possible_agents:
            raise ValueError(f"seat must be 'random' or one of {', '.join(game.possible_agents)}, got {seat!r}")
        for player in opponent.values() if isinstance(opponent, Mapping) else (opponent,):
            if not callable(player) and player not in ("random", "scripted"):
                raise ValueError(f"an opponent is 'random', 'scripted' or a callable, got {player!r}")
        if isinstance(opponent, Mapping):
            needed = game.possible_agents if seat == "random" else [a for a in game.possible_agents if a != seat]
            if missing := [a for a in needed if a not in opponent]:
                raise ValueError(f"no opponent is given for {', '.join(missing)}")
        self.opponent = opponent
        self._seat = seat
        #: The seat of this episode.
        self.seat = game.possible_agents[0] if seat == "random" else seat
        self._over = True

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        if seed is not None:
            self.seed(seed)
        for _ in range(_MAX_DEALS):
            observations, infos = reset_env(self.game, None, options)
            assert isinstance(observations, dict)
            if self._seat == "random":
                self.seat = self.game.rng.choice(self.game.possible_agents)
            _, over = self._play_others(infos)
            if not over:
                self._over = False
                return self.game.observe(self.seat), {**self.game.infos[self.seat], "seat": self.seat}
        raise RuntimeError(f"{self.seat} got no turn in {_MAX_DEALS} games: the others always end them first")

    def step(self, action: str) -> StepTuple:
        if self._over:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        actions = {a: self._act(a, self.game.infos[a]) for a in self.game.acting_agents() if a != self.seat}
        observations, rewards, terminations, truncations, infos = self.game.step({**actions, self.seat: action})
        reward, observation, info = rewards[self.seat], observations[self.seat], infos[self.seat]
        own = {k: info[k] for k in ("action_is_valid",) if k in info}  # what others do next says nothing about it
        if not (terminations[self.seat] or truncations[self.seat]):
            more, _ = self._play_others(infos)
            reward += more
            observation, info = self.game.observe(self.seat), {**self.game.infos[self.seat], **own}
        terminated, truncated = self.game.terminations[self.seat], self.game.truncations[self.seat]
        self._over = terminated or truncated
        return observation, reward, terminated, truncated, {**info, "seat": self.seat}

    def seed(self, seed: int) -> None:
        self.game.seed(seed)

    @property
    def rng(self) -> Any:
        return self.game.rng

    @property
    def action_rng(self) -> Any:
        return self.game.action_rng

    def sample_random_action(self) -> str:
        return self.game.sample_random_action(self.seat)

    def scripted_action(self) -> str:
        """The game's own good action for this seat."""
        return self.game.scripted_action(self.seat)

    def get_state(self) -> dict[str, Any]:
        return {"game": self.game.get_state(), "seat": self.seat, "over": self._over}

    def set_state(self, state: dict[str, Any]) -> None:
        self.game.set_state(state["game"])
        self.seat, self._over = state["seat"], state["over"]

    def spawn(self: ViewT, same_state: bool = False, **overrides: Any) -> ViewT:
        """As :meth:`Env.spawn`; ``seat`` and ``opponent`` are the view's, other overrides the game's."""
        settings: dict[str, Any] = {"seat": self._seat, "opponent": self.opponent}
        settings.update({k: overrides.pop(k) for k in ("seat", "opponent") if k in overrides})
        check_keywords(type(self.game), overrides, type(self.game).__name__)
        sibling = type(self)(self.game.spawn(**overrides), **settings)
        sibling.env_id = self.env_id
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    def close(self) -> None:
        self.game.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _play_others(self, infos: Mapping[str, Info]) -> tuple[float, bool]:
        """Plays on until the seat's turn or end; returns what the seat got meanwhile and whether it is out."""
        gained = 0.0
        while self.seat in self.game.agents and self.seat not in self.game.acting_agents():
            actions = {a: self._act(a, infos.get(a, {})) for a in self.game.acting_agents()}
            _, rewards, _, _, infos = self.game.step(actions)
            gained += rewards.get(self.seat, 0.0)
        return gained, self.seat not in self.game.agents

    def _act(self, agent: str, info: Info) -> str:
        player = self.opponent[agent] if isinstance(self.opponent, Mapping) else self.opponent
        if player == "random":
            return self.game.sample_random_action(agent, self.game.rng)  # part of the task, unlike action_rng
        if player == "scripted":
            return self.game.scripted_action(agent, self.game.rng)
        assert callable(player)
        return player(self.game.observe(agent), info)

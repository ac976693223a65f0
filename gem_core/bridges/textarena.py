"""TextArena's games (https://github.com/LeonGuertler/TextArena) as gem_core environments."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping
from typing import Any

from gem_core.bridges.foreign_random import ForeignRandom
from gem_core.core import Env, Info
from gem_core.multiagent.multi_agent_env import MultiAgentEnv, MultiStep
from gem_core.multiagent.seat_view import Opponent, SeatView

logger = logging.getLogger(__name__)

#: TextArena does not say how many players a game takes; the smallest number that it accepts is taken.
_PLAYER_COUNTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15)
#: Actions are mostly written in square brackets; names of speakers are too.
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,40})\]")
_SPEAKER = re.compile(r"GAME|Player( \d+)?", re.IGNORECASE)


class TextArenaGame(MultiAgentEnv):
    """One TextArena game with agents ``player_0``, ``player_1``, ...

    An agent observes the messages that are new to it since it last acted, without its own. TextArena gives rewards at
    the end only; ``info`` then carries its ``reason`` and ``success`` (a positive reward). TextArena draws from the
    global generators, which are put back after every call.

    Args:
        name: A TextArena id, such as ``TicTacToe-v0``.
        num_players: None: the smallest number that the game accepts.
        env_kwargs: For ``textarena.make``.
    """

    turn_mode = "sequential"

    def __init__(self, name: str, num_players: int | None = None, env_kwargs: Mapping[str, Any] | None = None) -> None:
        textarena = _import()
        super().__init__()
        self.name = name
        self.env_kwargs = dict(env_kwargs or {})
        self._foreign = ForeignRandom()
        self._seed = 0
        self._log: list[str] = []  # every action of the episode, to replay it
        self._formatters: list[Any] = []
        self._game: Any = None
        with self._foreign.swapped_in():
            self._build()
            self.num_players = self._count_players(textarena, num_players)
        self.possible_agents = [f"player_{i}" for i in range(self.num_players)]
        self._hints: list[str] = []

    # -- the game ---------------------------------------------------------------------------------------------

    def deal(self) -> None:
        self._start(self.rng.randrange(2**31))

    def acting_agents(self) -> list[str]:
        return [f"player_{self._game.state.current_player_id}"] if self.agents else []

    @property
    def agent_selection(self) -> str | None:
        return next(iter(self.acting_agents()), None)

    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        ((agent, action),) = actions.items()
        done = self._play(action)
        if not done:
            return {}, {}, {}, {}, {agent: {}}
        with self._foreign.swapped_in():
            rewards, game_info = self._game.close()
        rewards = {i: _number(r, self.name) for i, r in (rewards or {}).items()}
        game_info = game_info or {}
        ended = dict.fromkeys(self.agents, True)
        infos: dict[str, Info] = {}
        for i, a in enumerate(self.possible_agents):
            own = game_info.get(i, {})
            infos[a] = {"success": rewards.get(i, 0.0) > 0, "reason": str(own.get("reason", ""))}
            if own.get("invalid_move"):
                infos[a]["action_is_valid"] = False
            if infos[a]["reason"]:
                self.tell(a, f"The game is over: {infos[a]['reason']}")
        return {}, {a: rewards.get(i, 0.0) for i, a in enumerate(self.possible_agents)}, ended, {}, infos

    def sample_random_action(self, agent: str | None = None, rng: random.Random | None = None) -> str:
        """One of the bracketed texts that the player has been shown lately: TextArena lists no legal actions."""
        agent = agent or self.agent_selection or self.possible_agents[0]
        shown = self.observe(agent) or ""
        options = [o for o in _BRACKETED.findall(shown) if not _SPEAKER.fullmatch(o)] or self._hints
        return f"[{(rng or self.action_rng).choice(options)}]" if options else "[0]"

    def get_state(self, agent: str | None = None) -> Any:
        """The seed and the actions so far; :meth:`set_state` plays them again."""
        if agent is not None:
            return super().get_state(agent)
        return {**super().get_state(), "textarena": {"seed": self._seed, "actions": list(self._log)}}

    def set_state(self, state: dict[str, Any]) -> None:
        self.agents = list(self.possible_agents)
        self._news = {}
        self._start(state["textarena"]["seed"])
        for action in state["textarena"]["actions"]:
            self._play(action)
        super().set_state(state)

    # -- inside -----------------------------------------------------------------------------------------------

    def _start(self, seed: int) -> None:
        self._seed, self._log = seed, []
        self._foreign.seed(seed)
        with self._foreign.swapped_in():
            self._build()  # some games carry leftovers from one episode into the next
            self._game.reset(num_players=self.num_players, seed=seed)
        self._hints = []
        self._deliver()

    def _build(self) -> None:
        textarena = _import()
        try:
            env = textarena.make(self.name, **self.env_kwargs)
        except ImportError as e:
            raise ImportError(f"textarena:{self.name} needs a package that textarena does not bring: {e}") from e
        self._formatters = []
        while isinstance(env, textarena.Wrapper):
            if isinstance(env, textarena.ActionWrapper):
                self._formatters.append(env)
            env = env.env
        self._game = env

    def _play(self, action: str) -> bool:
        self._log.append(action)
        player = self._game.state.current_player_id
        with self._foreign.swapped_in():
            for formatter in self._formatters:
                action = formatter.action(action)
            done, _ = self._game.step(action=action)
        self._deliver(without=player)
        return bool(done)

    def _deliver(self, without: int | None = None) -> None:
        """Hands out the new messages; the acting player knows its own words."""
        textarena = _import()
        state = self._game.state
        for player in range(self.num_players):
            for sender, message, kind in state.observations.get(player, []):
                own = kind == textarena.ObservationType.PLAYER_ACTION and sender == player == without
                if not own:
                    name = "GAME" if sender == textarena.core.GAME_ID else state.role_mapping.get(sender, sender)
                    self.tell(f"player_{player}", f"[{name}] {str(message).strip()}")
                    if kind == textarena.ObservationType.PROMPT:
                        self._hints += [o for o in _BRACKETED.findall(message) if not _SPEAKER.fullmatch(o)]
            state.observations[player] = []

    def _count_players(self, textarena: Any, asked: int | None) -> int:
        """Tries numbers of players until the game starts with one."""
        failure: Exception | None = None
        for count in (asked,) if asked is not None else (1, *_PLAYER_COUNTS):
            try:
                self._game.reset(num_players=count, seed=0)
            except Exception as e:  # games refuse by whatever their code trips over
                failure = e
                continue
            if count == 1 and asked is None and not isinstance(self._game.state, textarena.SinglePlayerState):
                continue
            return count
        wanted = f"{asked} players" if asked is not None else "any number of players"
        raise ValueError(f"textarena:{self.name} does not start with {wanted}: {failure}")


def make_textarena(
    name: str,
    seat: str = "random",
    opponent: str | Opponent | Mapping[str, str | Opponent] = "random",
    num_players: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Env:
    """One seat of a TextArena game.

    Args:
        name: A TextArena id.
        seat: ``player_0``, ...; ``"random"`` draws one at each reset; ``"all"`` gives the
            :class:`TextArenaGame` itself, for :class:`~gem_core.multiagent.SeatSessions`.
        opponent: For the other seats of games with several; see :class:`~gem_core.multiagent.SeatView`. ``"random"``
            says one of the bracketed texts it was shown.
        num_players: See :class:`TextArenaGame`.
        env_kwargs: For ``textarena.make``.
    """
    if opponent == "scripted":
        raise ValueError("TextArena has no scripted players; opponent takes 'random', a callable, or a dict of them")
    game = TextArenaGame(name, num_players=num_players, env_kwargs=env_kwargs)
    return game if seat == "all" else SeatView(game, seat=seat, opponent=opponent)


def names() -> list[str]:
    """All ids of the installed TextArena."""
    _import()
    from textarena.envs.registration import ENV_REGISTRY

    return list(ENV_REGISTRY)


def _number(reward: Any, name: str) -> float:
    """Some games hand their arguments over in the wrong order and so give a text for a reward."""
    if isinstance(reward, (int, float)):
        return float(reward)
    logger.warning("textarena:%s gave the reward %.80r, which is no number; it counts as 0", name, reward)
    return 0.0


def _import() -> Any:
    try:
        import textarena
        import textarena.envs  # registers the games
    except ModuleNotFoundError as e:
        raise ImportError(f"textarena: needs the package {e.name!r}: pip install textarena", name=e.name) from e
    return textarena

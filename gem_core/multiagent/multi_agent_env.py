"""The contract of environments with several agents, with PettingZoo's names."""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from gem_core.core import Env, Info, rng_from_state, rng_state

#: ``"sequential"``: one agent acts at a time (PettingZoo's AEC). ``"parallel"``: all living agents act at once.
TurnMode = Literal["sequential", "parallel"]

#: ``(observations, rewards, terminations, truncations, infos)``, each by agent.
MultiStep = tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]


class AgentSelector:
    """Says whose turn it is.

    Args:
        agents: In the order of play.
        mode: See :data:`TurnMode`.
    """

    def __init__(self, agents: Sequence[str], mode: TurnMode = "sequential") -> None:
        if mode not in ("sequential", "parallel"):
            raise ValueError(f"mode must be 'sequential' or 'parallel', got {mode!r}")
        self.mode = mode
        self.reinit(agents)

    def reinit(self, agents: Sequence[str]) -> None:
        """Starts over with the first of ``agents``."""
        self._agents = list(agents)
        self._index = 0

    @property
    def selected(self) -> str | None:
        """The agent whose turn it is, in sequential mode."""
        return self._agents[self._index] if self._agents else None

    def get_active_agents(self) -> list[str]:
        """Those who must act now."""
        if self.mode == "parallel":
            return list(self._agents)
        return [self._agents[self._index]] if self._agents else []

    def next(self) -> None:
        """Passes the turn on."""
        if self.mode == "sequential" and self._agents:
            self._index = (self._index + 1) % len(self._agents)

    def is_first(self) -> bool:
        return self._index == 0

    def is_last(self) -> bool:
        return self._index == len(self._agents) - 1

    def add_agent(self, agent: str) -> None:
        if agent not in self._agents:
            self._agents.append(agent)

    def remove_agent(self, agent: str) -> None:
        """Takes an agent out; the turn stays with whom it was, or goes to the next where it was theirs."""
        if agent not in self._agents:
            return
        at = self._agents.index(agent)
        del self._agents[at]
        if at < self._index:
            self._index -= 1
        if self._agents:
            self._index %= len(self._agents)
        else:
            self._index = 0

    def get_state(self) -> dict[str, Any]:
        return {"agents": list(self._agents), "index": self._index}

    def set_state(self, state: dict[str, Any]) -> None:
        self._agents, self._index = list(state["agents"]), state["index"]


class MultiAgentEnv(Env):
    """Base of environments with several agents; ``reset`` and ``step`` speak dicts by agent.

    A subclass sets ``possible_agents`` (and ``turn_mode``, or an ``agent_selector`` of its own) and implements
    :meth:`observe` and :meth:`_process_actions`; :meth:`deal` draws a new game. ``agents`` are those still in play.
    One agent's end does not end the others'; the episode is over when ``agents`` is empty.

    What happened since an agent last acted can be kept with :meth:`tell`: the default :meth:`observe` returns it.

    A plain :class:`~gem_core.core.Env` of one seat is :class:`~gem_core.multiagent.seat_view.SeatView`; all seats are
    trained with :class:`~gem_core.multiagent.seat_sessions.SeatSessions`.
    """

    turn_mode: ClassVar[TurnMode] = "sequential"
    #: Names of the JSON-able attributes that :meth:`get_state` saves, besides those of this class.
    state_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, possible_agents: Sequence[str] = ()) -> None:
        self.possible_agents: list[str] = list(possible_agents)
        self.agents: list[str] = []
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.rewards: dict[str, float] = {}
        self.infos: dict[str, Info] = {}
        self.agent_selector: AgentSelector | None = None
        self._cumulative_rewards: dict[str, float] = {}
        self._news: dict[str, list[str]] = {}

    # -- what a game defines ----------------------------------------------------------------------------------

    def deal(self) -> None:
        """Draws a new game from ``self.rng`` and tells every agent its first observation."""

    @abc.abstractmethod
    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        """Plays the actions of those whose turn it is. Agents left out of a dict: no reward, not over."""

    def observe(self, agent: str) -> str:
        """What ``agent`` has been told since it last acted. Calling it changes nothing."""
        return "\n".join(self._news.get(agent, ()))

    def scripted_action(self, agent: str, rng: random.Random | None = None) -> str:
        """A good action for ``agent`` in the current state, where one is easy; ``rng`` chooses among equals."""
        raise NotImplementedError(f"{type(self).__name__} does not implement scripted_action()")

    def sample_random_action(self, agent: str | None = None, rng: random.Random | None = None) -> str:
        """A well-formed action for ``agent`` (by default the one whose turn it is), drawn from ``rng`` or
        ``self.action_rng``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement sample_random_action()")

    # -- the contract -----------------------------------------------------------------------------------------

    @property
    def agent_selection(self) -> str | None:
        """The agent whose turn it is; None in parallel mode and at the end."""
        if self.agent_selector is None or self.agent_selector.mode == "parallel" or not self.agents:
            return None
        return self.agent_selector.selected

    def acting_agents(self) -> list[str]:
        """Those who must act in the next :meth:`step`."""
        active = self.agent_selector.get_active_agents() if self.agent_selector is not None else self.agents
        return [a for a in active if a in self.agents]

    def tell(self, agents: str | Sequence[str], text: str) -> None:
        """Adds to what one or several agents will observe."""
        for agent in [agents] if isinstance(agents, str) else agents:
            self._news.setdefault(agent, []).append(text)

    def reset(  # type: ignore[override]
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Info]]:
        """Starts a new episode.

        Returns:
            Observations and infos of all agents. ``info["suffix"]``, as in :meth:`Env.reset`, is there for those who
            act next.
        """
        if options:
            raise ValueError(f"{type(self).__name__}.reset() takes no options, got {sorted(options)}")
        if not self.possible_agents:
            raise ValueError(f"{type(self).__name__} has no possible_agents")
        if seed is not None:
            self.seed(seed)
        self.agents = list(self.possible_agents)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._news = {}
        if self.agent_selector is None:
            self.agent_selector = AgentSelector(self.agents, self.turn_mode)
        self.agent_selector.reinit(self.agents)
        self.deal()
        self.infos = {a: self._info(a) for a in self.agents}
        return {a: self.observe(a) for a in self.agents}, dict(self.infos)

    def step(self, actions: Mapping[str, str]) -> MultiStep:  # type: ignore[override]
        """Plays one turn (sequential) or one round (parallel).

        Args:
            actions: One for each of :meth:`acting_agents`, no more and no fewer.

        Returns:
            Five dicts by agent, for all who were in play before the step: what each would observe now, the reward of
            this step, whether the rules or a limit ended its episode, and its info.

        Raises:
            RuntimeError: the episode is over.
            ValueError: an action is missing, or one is given by an agent whose turn it is not.
        """
        if not self.agents:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        if not isinstance(actions, Mapping):
            raise ValueError(f"actions must be a dict by agent, got {type(actions).__name__}")
        before, acting = list(self.agents), self.acting_agents()
        if missing := [a for a in acting if a not in actions]:
            raise ValueError(f"no action of {', '.join(missing)}, whose turn it is")
        if others := [str(a) for a in actions if a not in acting]:
            raise ValueError(f"it is not the turn of {', '.join(others)}, but of {', '.join(acting)}")
        for agent, action in actions.items():
            if not isinstance(action, str):
                raise TypeError(f"the action of {agent} is a string, got {type(action).__name__}")
        for agent in acting:
            self._news[agent] = []
        observations, rewards, terminations, truncations, infos = self._process_actions(dict(actions))
        self.rewards = {a: float(rewards.get(a, 0.0)) for a in before}
        for agent in before:
            self._cumulative_rewards[agent] += self.rewards[agent]
            self.terminations[agent] = bool(terminations.get(agent, False))
            self.truncations[agent] = bool(truncations.get(agent, False))
            if self.terminations[agent] or self.truncations[agent]:
                self._end(agent)
        # A turn that its owner's end did not pass on already.
        if self.agent_selector is not None and any(a in self.agents for a in acting):
            self.agent_selector.next()
        self.infos = {a: {**self._info(a), **infos.get(a, {})} for a in before}
        seen = {a: observations.get(a, self.observe(a)) for a in before}
        return (
            seen,
            dict(self.rewards),
            {a: self.terminations[a] for a in before},
            {a: self.truncations[a] for a in before},
            dict(self.infos),
        )

    def last(self, agent: str | None = None) -> tuple[str, float, bool, bool, Info]:
        """PettingZoo's view of one agent (by default the one whose turn it is): observation, return so far,
        termination, truncation, info."""
        agent = agent if agent is not None else self.agent_selection
        if agent is None or agent not in self.possible_agents:
            raise ValueError(f"last() needs one of the agents {', '.join(self.possible_agents)}, got {agent!r}")
        return (
            self.observe(agent),
            self._cumulative_rewards.get(agent, 0.0),
            self.terminations.get(agent, False),
            self.truncations.get(agent, False),
            self.infos.get(agent, {}),
        )

    def get_state(self, agent: str | None = None) -> Any:
        """Returns the saved state; with ``agent`` given, what :meth:`last` returns (GEM's meaning of the name)."""
        if agent is not None:
            return self.last(agent)
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "agents": list(self.agents),
            "terminations": dict(self.terminations),
            "truncations": dict(self.truncations),
            "rewards": dict(self.rewards),
            "cumulative_rewards": dict(self._cumulative_rewards),
            "infos": {a: dict(i) for a, i in self.infos.items()},
            "news": {a: list(n) for a, n in self._news.items()},
            "selector": self.agent_selector.get_state() if self.agent_selector is not None else None,
            "game": {name: _copy(getattr(self, name)) for name in self.state_fields},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self.agents = list(state["agents"])
        self.terminations = dict(state["terminations"])
        self.truncations = dict(state["truncations"])
        self.rewards = dict(state["rewards"])
        self._cumulative_rewards = dict(state["cumulative_rewards"])
        self.infos = {a: dict(i) for a, i in state["infos"].items()}
        self._news = {a: list(n) for a, n in state["news"].items()}
        if state["selector"] is not None:
            if self.agent_selector is None:
                self.agent_selector = AgentSelector(self.agents, self.turn_mode)
            self.agent_selector.set_state(state["selector"])
        for name, value in state["game"].items():
            setattr(self, name, _copy(value))

    # -- inside -----------------------------------------------------------------------------------------------

    def _info(self, agent: str) -> Info:
        """The info of an agent where :meth:`_process_actions` gives none."""
        return {}

    def _end(self, agent: str) -> None:
        self.agents.remove(agent)
        if self.agent_selector is not None:
            self.agent_selector.remove_agent(agent)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(v) for v in value]
    return value

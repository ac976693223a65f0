"""Training all seats of one game: every seat gets an :class:`~gem_core.session.EpisodeSession` of its own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from gem_core.chat import Renderer
from gem_core.core import Info
from gem_core.episode import Episode, StopReason
from gem_core.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.session import EpisodeSession, Generation, Limits, Prompt

logger = logging.getLogger(__name__)


class SeatSessions:
    """Plays one game with a session a seat; like a session it has no I/O of its own.

    ::

        prompts = sessions.start()
        while prompts:
            agent, prompt = next(iter(prompts.items()))
            prompts = sessions.submit(agent, generate(agent, prompt))
        sessions.episodes["player_0"]

    A turn's reward is all that the seat got until its next turn (or its end), the others' moves included, so the
    rewards of an episode sum to what the seat got in all. Where one seat stops by a limit of its own, the game cannot
    go on, and the other seats' episodes are truncated.

    Args:
        env: The game; not closed here.
        renderer: See :class:`~gem_core.session.EpisodeSession`; a dict gives each seat its own.
        seed: For ``env.reset``.
        limits: For each seat.
        game_id: The episodes' ids are ``game_id/agent``; random if None.
        group_id: Of the episodes; the seats' groups are ``group_id/agent``, as seats are not comparable.
        **session: Passed to every session (``context``, ``system_prompt``, ``length_stop``).
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        renderer: Renderer | Mapping[str, Renderer] | None = None,
        *,
        seed: int | None = None,
        limits: Limits | None = None,
        game_id: str | None = None,
        group_id: str | None = None,
        **session: Any,
    ) -> None:
        self.env = env
        self.seed = seed
        game_id = game_id or uuid.uuid4().hex
        group_id = group_id or game_id
        self.sessions: dict[str, EpisodeSession] = {
            agent: EpisodeSession(
                None,
                renderer[agent] if isinstance(renderer, Mapping) else renderer,
                seed=seed,
                limits=limits,
                episode_id=f"{game_id}/{agent}",
                group_id=f"{group_id}/{agent}",
                env_id=env.env_id or type(env).__name__,
                metadata={"seat": agent, "game_id": game_id},
                **session,
            )
            for agent in env.possible_agents
        }
        self._begun: set[str] = set()
        self._actions: dict[str, str] = {}  # of this round, until all are there
        self._gained: dict[str, float] = dict.fromkeys(env.possible_agents, 0.0)

    @property
    def episodes(self) -> dict[str, Episode]:
        """By agent; an agent that never had a turn has none."""
        return {a: s.episode for a, s in self.sessions.items() if a in self._begun}

    @property
    def done(self) -> bool:
        return not self.prompts

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts waiting for :meth:`submit`: one in a sequential game, those still open in a parallel round."""
        return {a: p for a, s in self.sessions.items() if (p := s.prompt) is not None}

    def start(self) -> dict[str, Prompt]:
        """Resets the game and returns the first prompts."""
        try:
            observations, infos = self.env.reset(seed=self.seed)
        except Exception as e:
            for agent, session in self.sessions.items():
                self._begun.add(agent)
                session.begin_failed(f"reset: {type(e).__name__}: {e}")
            logger.warning("game of seed %s: reset failed", self.seed, exc_info=True)
            return {}
        self._open(observations, infos)
        return self.prompts

    def submit(self, agent: str, generation: Generation) -> dict[str, Prompt]:
        """Gives one seat's answer; returns the prompts that are open then, none when the game is over."""
        if agent not in self.sessions:
            raise ValueError(f"no seat is called {agent!r}; there are {', '.join(self.sessions)}")
        action = self.sessions[agent].act(generation)
        if action is not None:
            self._actions[agent] = action
        elif self.sessions[agent].done:  # given up after too many aborts
            self._give_up(agent)
            return {}
        if self._actions and all(a in self._actions for a in self.env.acting_agents()):
            self._step()
        return self.prompts

    # -- inside -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        actions, self._actions = self._actions, {}
        try:
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
        except Exception as e:
            logger.warning("game of seed %s: step failed", self.seed, exc_info=True)
            for agent in self._begun:
                self.sessions[agent].fail(StopReason.ENV_ERROR, f"step: {type(e).__name__}: {e}")
            return
        for agent, reward in rewards.items():
            self._gained[agent] += reward
        for agent in rewards:
            over = terminations[agent] or truncations[agent]
            if agent in self._begun and (over or agent in self.env.acting_agents()):
                self._observe(agent, observations[agent], terminations[agent], truncations[agent], infos[agent])
        self._open(observations, infos)

    def _observe(self, agent: str, observation: str, terminated: bool, truncated: bool, info: Info) -> None:
        gained, self._gained[agent] = self._gained[agent], 0.0
        session = self.sessions[agent]
        if not session.done:
            session.observe(observation, gained, terminated, truncated, info)

    def _open(self, observations: Mapping[str, str], infos: Mapping[str, Info]) -> None:
        """Begins the sessions of those who act for the first time; ends the game where one of them cannot."""
        for agent in self.env.acting_agents():
            if agent not in self._begun:
                self._begun.add(agent)
                self._gained[agent] = 0.0  # nothing that it did
                self.sessions[agent].begin(observations[agent], infos[agent])
        for agent in self.env.acting_agents():
            if self.sessions[agent].done:
                self._give_up(agent)
                return

    def _give_up(self, culprit: str) -> None:
        """One seat stopped by itself while the game wants it to act."""
        for agent in self._begun:
            session = self.sessions[agent]
            if session.done:
                continue
            if session.prompt is None:  # its last action was played or waits for the others'
                self._observe(agent, f"{culprit} can play no further, so the game ends here.", False, True, {})
            else:
                session.fail(StopReason.TRUNCATED, f"{culprit} stopped: {self.sessions[culprit].episode.stop_reason}")


class _Policy(Protocol):
    def generate(self, prompts: list[Prompt]) -> list[Generation]: ...


def play_seats(sessions: SeatSessions, policies: _Policy | Mapping[str, _Policy]) -> dict[str, Episode]:
    """Plays a game to its end.

    Args:
        sessions: Not started yet.
        policies: One for all seats (self-play; a parallel round's prompts come in one batch), or one a seat.

    Returns:
        The episodes by agent.
    """
    prompts = sessions.start()
    while prompts:
        if isinstance(policies, Mapping):
            answers = {a: policies[a].generate([p])[0] for a, p in prompts.items()}
        else:
            answers = dict(zip(prompts, policies.generate(list(prompts.values())), strict=True))
        for agent, answer in answers.items():
            if sessions.sessions[agent].prompt is not None:
                prompts = sessions.submit(agent, answer)
    return sessions.episodes

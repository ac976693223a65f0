"""The texts of environments: what they say to random and malformed actions."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.registration import make
from gem_core.session import with_suffix


def corpus(env_ids: Sequence[str], episodes: int = 16, max_turns: int = 30) -> list[str]:
    """Plays random episodes of fixed seeds and returns every text met: observations and actions.

    The same environments give the same texts.

    Args:
        env_ids: Ids of :func:`gem_core.make`.
        episodes: For each environment.
        max_turns: Of one episode.
    """
    texts: list[str] = []
    for env_id in env_ids:
        env = make(env_id)
        for seed in range(episodes):
            observation, info = env.reset(seed=seed)
            texts.append(with_suffix(observation, info))
            for turn in range(max_turns):
                action = env.sample_random_action()
                if turn == 0 and seed % 4 == 1:  # what the environment says to nonsense belongs to its texts too
                    action = ""
                observation, _, terminated, truncated, info = env.step(action)
                texts += [action, with_suffix(observation, info)]
                if terminated or truncated:
                    break
        env.close()
    return texts

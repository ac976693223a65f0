"""Environments stepped one after the other, in the caller's thread."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gem_core.core import Env, Info
from gem_core.vector.host import EnvFactory, EnvHost
from gem_core.vector.types import AutoresetMode
from gem_core.vector.vector_env import VectorEnv, VectorStep


class SyncVectorEnv(VectorEnv):
    """See :class:`~gem_core.vector.vector_env.VectorEnv`.

    Args:
        env_ids: The id of each environment.
        env_fns: Functions that build them.
        autoreset_mode: See :class:`~gem_core.vector.types.AutoresetMode`.
        seed: Environment ``i`` starts from ``seed + i`` where the first reset is given no seed.
    """

    def __init__(
        self,
        env_ids: Sequence[str],
        env_fns: Sequence[Callable[[], Env] | EnvFactory],
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        seed: int | None = None,
    ) -> None:
        super().__init__(env_ids, len(env_fns), AutoresetMode.parse(autoreset_mode))
        factories = as_factories(env_fns, seed)
        self._hosts = [EnvHost(i, self.autoreset_mode, f) for i, f in enumerate(factories)]
        try:
            for host in self._hosts:
                host._build()
        except BaseException:
            self.close()
            raise

    @property
    def envs(self) -> list[Env]:
        """The environments themselves; one that failed is replaced by a new one."""
        return [host._require() for host in self._hosts]

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Sequence[int] | None = None,
    ) -> tuple[list[str], list[Info]]:
        indices, seeds, options = self._resets(seed, options, env_ids)
        results = [self._hosts[i].reset(s, options) for i, s in zip(indices, seeds, strict=True)]
        self._finish(indices, results)
        return [r[0] for r in results], [r[4] for r in results]

    def step(self, actions: Sequence[str] | Mapping[int, str]) -> VectorStep:
        indices, chosen = self._actions(actions)
        self._check_steppable(indices)
        hosts = [self._hosts[i] for i in indices] if isinstance(actions, Mapping) else self._hosts
        observations: list[str] = []
        rewards: list[float] = []
        infos: list[Info] = []
        terminations, truncations = np.zeros(len(hosts), dtype=np.bool_), np.zeros(len(hosts), dtype=np.bool_)
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        disabled = self.autoreset_mode is AutoresetMode.DISABLED
        for host, action in zip(hosts, chosen, strict=True):
            # EnvHost.step without its calls and tuples: an environment's step may take no more than a microsecond.
            play = host.play
            try:
                if play is None:
                    observation, reward, terminated, truncated, info = host.step(action)[1]
                else:
                    observation, reward, terminated, truncated, info = play(action)
                    if reward.__class__ is not float:
                        reward = float(reward)
            except (Exception, SystemExit) as e:
                observation, reward, terminated, truncated, info = host.step_failed(e)
            if terminated or truncated:
                k = len(observations)
                if terminated:
                    terminations[k] = True
                if truncated:
                    truncations[k] = True
                env = host.env
                if play is None:
                    pass  # a reset that failed
                elif same_step and env is not None:
                    try:
                        first, fresh = env.reset()
                        observation, info = first, {**fresh, "final_obs": observation, "final_info": info}
                    except (Exception, SystemExit) as e:
                        last = (observation, reward, terminated, truncated, info)
                        observation, reward, _, _, info = host.autoreset_failed(last, e)
                else:  # the step failed and its environment is gone, or there is no autoreset in this step
                    last = (observation, reward, terminated, truncated, info)
                    observation, reward, _, _, info = host.finish(last)[1]
                if disabled:
                    self._steppable[host.index] = False
            observations.append(observation)
            rewards.append(reward)
            infos.append(info)
        # Several times faster than np.array for so few.
        return observations, np.frombuffer(array("d", rewards)), terminations, truncations, infos

    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> list[Any]:
        out = []
        for i in self._indices(env_ids):
            value = getattr(self._hosts[i]._require(), name)
            out.append(value(*args, **kwargs) if callable(value) else value)
        return out

    def close(self) -> None:
        for host in self._hosts:
            host.close()


def as_factories(env_fns: Sequence[Callable[[], Env] | EnvFactory], seed: int | None) -> list[EnvFactory]:
    """Factories of functions that build environments; those that are factories stay as they are."""
    return [
        f if isinstance(f, EnvFactory) else EnvFactory(f, seed=None if seed is None else seed + i)
        for i, f in enumerate(env_fns)
    ]

"""Environments stepped one after the other, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_core.core import Env, Info
from gem_core.vector.host import EnvFactory, EnvHost, checked
from gem_core.vector.types import AutoresetMode
from gem_core.vector.vector_env import VectorEnv, VectorStep, arrays


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
        hosts = self._hosts
        results = []
        for i, action in zip(indices, chosen, strict=True):
            # EnvHost.step without its calls: an environment's step may take no more than a microsecond.
            host = hosts[i]
            if host._playing:
                try:
                    result = host.env.step(action)  # type: ignore[union-attr]
                    if result[1].__class__ is not float or len(result) != 5:
                        result = checked(result)
                except (Exception, SystemExit) as e:
                    result = host.step_failed(e)
                if result[2] or result[3]:
                    result = host.finish(result)[1]
            else:
                result = host.step(action)[1]
            results.append(result)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._finish(indices, results)
        return arrays(results)

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

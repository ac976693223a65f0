"""One environment inside a worker: built from a factory, its faults caught, its autoresets done on the spot."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gem_core.core import Cost, Env, StepTuple, reset_env
from gem_core.registration import EnvSpec, WrapperFn, make_from_spec
from gem_core.vector.types import (
    RAISED,
    RESULT,
    UNRESET,
    VALUE,
    AutoresetMode,
    Command,
    FaultKind,
    Reply,
    after_autoreset,
    failure,
)

#: How often an environment was built: by a new worker, and again within it after a fault.
Incarnation = tuple[int, int]


@dataclass(frozen=True)
class EnvFactory:
    """Builds an environment, in this process or in a worker."""

    #: A spec (resolved where the vector was made: a worker's registry may lack it) or a function without arguments.
    source: EnvSpec | Callable[[], Env]
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperFn, ...] = ()
    #: Of the first reset that is given none; rebuilt environments go on from seeds derived from it.
    seed: int | None = None

    @property
    def env_id(self) -> str:
        return self.source.id if isinstance(self.source, EnvSpec) else ""

    @property
    def cost(self) -> Cost:
        """What the environment declares; of an environment's class without a spec, its ``cost``."""
        if isinstance(self.source, EnvSpec):
            if self.source.cost != "cheap":
                return self.source.cost
            cost = getattr(_entry_class(self.source), "cost", "cheap")
        else:
            cost = getattr(self.source, "cost", "cheap")
        known: dict[Any, Cost] = {"waits": "waits", "computes": "computes"}
        return known.get(cost, "cheap")

    @property
    def modules(self) -> list[str]:
        """What a worker may import ahead."""
        if isinstance(self.source, EnvSpec) and isinstance(self.source.entry_point, str):
            return [self.source.entry_point.split(":")[0]]
        return []

    def build(self) -> Env:
        if isinstance(self.source, EnvSpec):
            kwargs = {k: v for k, v in self.kwargs.items() if k != "seed"}
            if self.seed is not None and _takes_seed(self.source):
                kwargs["seed"] = self.seed
            env = make_from_spec(self.source, **kwargs)
        else:
            env = self.source()
        for wrap in self.wrappers:
            env = wrap(env)
        return env

    def first_seed(self, incarnation: Incarnation) -> int | None:
        if self.seed is None or incarnation == (0, 0):
            return self.seed
        return random.Random(f"{self.seed}:{incarnation}").getrandbits(31)

    @functools.cached_property
    def packed(self) -> PackedFactory:
        """For a worker process of this machine.

        Raises:
            ValueError: an environment's argument or wrapper cannot be pickled.
        """
        from gem_core.vector.packing import pack

        return PackedFactory(pack(self, sys.path))

    @functools.cached_property
    def packed_for_cluster(self) -> PackedFactory:
        """For a worker on a machine that has the installed packages, but not what lies beside the script."""
        from gem_core.vector.packing import installed_path, pack

        return PackedFactory(pack(self, installed_path()))


@dataclass(frozen=True)
class PackedFactory:
    """An :class:`EnvFactory` as bytes, so that a worker unpacks it where a fault belongs to one environment."""

    payload: bytes

    def unpack(self) -> EnvFactory:
        return _unpack(self.payload)


@functools.lru_cache(maxsize=1024)
def _unpack(payload: bytes) -> EnvFactory:
    factory: EnvFactory = pickle.loads(payload)
    return factory


class EnvHost:
    """Runs the commands of one environment, one at a time.

    Args:
        index: The environment's place in the vector.
        mode: See :class:`AutoresetMode`.
        factory: None where the first command brings one.
        life: How many workers the environment had before.
    """

    def __init__(
        self, index: int, mode: AutoresetMode, factory: EnvFactory | PackedFactory | None = None, life: int = 0
    ) -> None:
        self.index = index
        self.mode = mode
        #: False in a worker that is to be given up: the environment moves at its next reset.
        self.autoreset_here = True
        self.env: Env | None = None
        self._key: object = factory
        self._factory: EnvFactory | None = None
        self.incarnation: Incarnation = (life, 0)
        self._fresh = True  # never reset since it was built
        #: The environment's ``step`` while an episode goes on.
        self.play: Callable[[str], StepTuple] | None = None

    def run(self, command: Command) -> Reply:
        index, ticket, op, payload = command
        if op == "step":
            flag, value = self.step(payload)
            return Reply(index, ticket, flag, value)
        if op == "reset":
            return Reply(index, ticket, RESULT, self.reset(*payload))
        if op == "open":
            factory, seed, options = payload
            return Reply(index, ticket, RESULT, self.reset(seed, options, factory))
        try:
            if op == "build":
                self._use(payload)
                self._build()
                return Reply(index, ticket, VALUE, None)
            name, args, kwargs = payload
            value = getattr(self._require(), name)
            return Reply(index, ticket, VALUE, value(*args, **kwargs) if callable(value) else value)
        except (Exception, SystemExit) as e:
            return Reply(index, ticket, RAISED, e)

    def step(self, action: str) -> tuple[int, StepTuple]:
        """Plays one turn, or resets where the mode says so."""
        if self.play is None:
            if self.mode is AutoresetMode.DISABLED:
                return RAISED, RuntimeError(over_message(self.index))  # type: ignore[return-value]
            return RESULT, self.reset(None, None)
        try:
            result = checked(self.play(action))
        except (Exception, SystemExit) as e:
            result = self.step_failed(e)
        return self.finish(result) if result[2] or result[3] else (RESULT, result)

    def step_failed(self, error: BaseException) -> StepTuple:
        """The result that stands for a step that raised."""
        return self._failed(error, "step")

    def finish(self, result: StepTuple) -> tuple[int, StepTuple]:
        """What follows an episode's last result."""
        self.play = None
        if self.mode is not AutoresetMode.SAME_STEP:
            return RESULT, result
        if not self.autoreset_here:
            return UNRESET, result
        env = self.env
        if env is None:
            return RESULT, after_autoreset(result, self.reset(None, None))
        try:
            observation, info = env.reset()
            info = {**info, "final_obs": result[0], "final_info": result[4]}
        except (Exception, SystemExit) as e:
            return RESULT, self.autoreset_failed(result, e)
        self.play = env.step
        return RESULT, (observation, result[1], result[2], result[3], info)

    def autoreset_failed(self, result: StepTuple, error: BaseException) -> StepTuple:
        """The last result of an episode, where the reset after it raised."""
        self.play = None
        return after_autoreset(result, self._failed(error, "reset"))

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, factory: EnvFactory | PackedFactory | None = None
    ) -> StepTuple:
        """Starts an episode; a failure to is an episode that failed."""
        self.play = None
        try:
            if factory is not None:
                self._use(factory)
            env = self._require()
            if seed is None and self._fresh:
                assert self._factory is not None
                seed = self._factory.first_seed(self.incarnation)
            observation, info = reset_env(env, seed, options)
        except (Exception, SystemExit) as e:
            return self._failed(e, "reset")
        self._fresh = False
        self.play = env.step
        return observation, 0.0, False, False, info

    def successor(self) -> EnvHost:
        """For an environment whose step never came back: the same from its factory on."""
        host = EnvHost(self.index, self.mode)
        host._key, host._factory = self._key, self._factory
        host.incarnation = (self.incarnation[0], self.incarnation[1] + 1)
        return host

    def close(self) -> None:
        env, self.env = self.env, None
        self.play = None
        if env is not None:
            with contextlib.suppress(Exception, SystemExit):
                env.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _use(self, factory: EnvFactory | PackedFactory) -> None:
        # By identity where it may hold anything (a dataset, say), by value where it is bytes.
        if factory is not self._key and not (isinstance(factory, PackedFactory) and factory == self._key):
            self.close()
            self._key, self._factory = factory, None

    def _require(self) -> Env:
        return self.env if self.env is not None else self._build()

    def _build(self) -> Env:
        if self.env is None:
            if self._factory is None:
                if not isinstance(self._key, (EnvFactory, PackedFactory)):
                    raise RuntimeError(f"environment {self.index} has not been built yet; reset it first")
                self._factory = self._key.unpack() if isinstance(self._key, PackedFactory) else self._key
            factory = self._factory
            seed = factory.first_seed(self.incarnation)
            self.env = (factory if seed == factory.seed else replace(factory, seed=seed)).build()
            self._fresh = True
        return self.env

    def _failed(self, error: BaseException, where: str) -> StepTuple:
        """After a fault nobody knows what state the environment is in: the next episode gets a new one."""
        self.close()
        self.incarnation = (self.incarnation[0], self.incarnation[1] + 1)
        kind: FaultKind = "exit" if isinstance(error, SystemExit) else "exception"
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return failure(kind, f"{type(error).__name__}: {error}", where, text)


def checked(result: StepTuple) -> StepTuple:
    """The five-tuple with its reward as a float.

    Raises:
        ValueError: it is no five-tuple; (or TypeError) its reward is no number.
    """
    observation, reward, terminated, truncated, info = result
    return result if reward.__class__ is float else (observation, float(reward), terminated, truncated, info)


def over_message(index: int) -> str:
    return f"the episode of environment {index} is over or was never started; reset it first"


def portable(error: BaseException) -> BaseException:
    """The exception itself where it survives pickling, else a RuntimeError that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
        return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _entry(spec: EnvSpec) -> Any:
    if not isinstance(spec.entry_point, str):
        return spec.entry_point
    module, name = spec.entry_point.split(":")
    return getattr(importlib.import_module(module), name)


def _entry_class(spec: EnvSpec) -> Any:
    """The entry point, or None where it cannot be imported (building it says why)."""
    try:
        return _entry(spec)
    except Exception:
        return None


def _takes_seed(spec: EnvSpec) -> bool:
    entry = _entry(spec)
    try:
        parameters = inspect.signature(entry.__init__ if inspect.isclass(entry) else entry).parameters
    except (TypeError, ValueError):
        return False
    return "seed" in parameters

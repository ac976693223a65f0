"""The environment contract: Gymnasium's five-tuple with text observations and text actions."""

from __future__ import annotations

import abc
import operator
import random
from typing import Any, ClassVar, Literal, TypeVar

Observation = str
Info = dict[str, Any]
StepTuple = tuple[str, float, bool, bool, Info]

#: What a step mostly spends its time on; the vectorised executors choose their default from it.
#: ``cheap`` = microseconds of Python, ``waits`` = blocks on I/O, ``computes`` = a millisecond or more of CPU.
Cost = Literal["cheap", "waits", "computes"]

EnvT = TypeVar("EnvT", bound="Env")


class Env(abc.ABC):
    """One task an agent acts in, by text.

    Subclasses implement :meth:`reset` and :meth:`step`. Each environment draws from its own generators,
    ``self.rng`` (the task) and ``self.action_rng`` (:meth:`sample_random_action`), never from the global
    ``random`` or NumPy state, so the same seed and actions give the same episode in any thread, process or order.
    """

    #: See :data:`Cost`.
    cost: ClassVar[Cost] = "cheap"
    #: Set by :func:`gem_core.make`; empty for environments built by hand.
    env_id: str = ""

    _init_args: tuple[tuple[Any, ...], dict[str, Any]]
    _rng: random.Random | None = None
    _action_rng: random.Random | None = None
    _action_seed: str | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Env:
        self = super().__new__(cls)
        self._init_args = (args, kwargs)  # what spawn() builds a sibling from
        return self

    @abc.abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Starts a new episode.

        Args:
            seed: Non-negative int that fixes the episode. ``None`` goes on with the generator of earlier episodes.
            options: Task-specific choices, such as ``{"index": 3}`` of a dataset environment.

        Returns:
            The first observation and ``info``. ``info["suffix"]``, where present, is the part of the observation
            that describes only the current turn (board, request); observation wrappers and
            :class:`~gem_core.session.EpisodeSession` append it.
        """
        if seed is not None:
            self.seed(seed)
        return "", {}  # never shown: overrides call super().reset(seed) for the seeding, as in GEM and Gymnasium

    @abc.abstractmethod
    def step(self, action: str) -> StepTuple:
        """Plays one turn.

        Returns:
            ``(observation, reward, terminated, truncated, info)``. ``terminated``: the task's own rules ended the
            episode. ``truncated``: a limit did. Both false: the episode goes on.

        Raises:
            RuntimeError: the episode is over; call :meth:`reset` first.
        """

    # -- random numbers ---------------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Restarts both generators from ``seed``.

        Raises:
            ValueError: ``seed`` is not a non-negative integer.
        """
        seed = check_seed(seed)
        # Seeding is most of a cheap game's reset: the generator is kept, and the actions' one is made when it is used.
        if self._rng is None:
            self._rng = random.Random(seed)
        else:
            self._rng.seed(seed)
        self._action_seed, self._action_rng = f"action:{seed}", None

    @property
    def rng(self) -> random.Random:
        """The task's generator; seeded from the operating system until :meth:`seed` is called."""
        if self._rng is None:
            self._rng = random.Random()
        return self._rng

    @property
    def action_rng(self) -> random.Random:
        """The generator of :meth:`sample_random_action`, apart so that sampling never changes the task."""
        if self._action_rng is None:
            self._action_rng = random.Random(self._action_seed)  # None: from the operating system
        return self._action_rng

    # -- optional parts ---------------------------------------------------------------------------------------

    def sample_random_action(self) -> str:
        """Returns a well-formed action for the current state."""
        raise NotImplementedError(f"{type(self).__name__} does not implement sample_random_action()")

    def get_state(self) -> dict[str, Any]:
        """Returns everything that the rest of the episode depends on, as JSON-able values."""
        raise NotImplementedError(f"{type(self).__name__} does not implement get_state()")

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from what :meth:`get_state` returned, in this or another instance of the same class."""
        raise NotImplementedError(f"{type(self).__name__} does not implement set_state()")

    def spawn(self: EnvT, same_state: bool = False, **overrides: Any) -> EnvT:
        """Builds another instance with the same configuration.

        Args:
            same_state: Copy the state too, generators included.
            **overrides: Constructor arguments that differ.

        Raises:
            ValueError: an override that the constructor does not take.
        """
        args, kwargs = self._init_args
        check_keywords(type(self), overrides, type(self).__name__)
        sibling = type(self)(*args, **{**kwargs, **overrides})
        sibling.env_id = self.env_id
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    def close(self) -> None:  # noqa: B027 - most environments hold nothing to release
        """Releases processes, connections and files. Safe to call twice."""

    @property
    def unwrapped(self) -> Env:
        """The environment under all wrappers."""
        return self

    def __enter__(self: EnvT) -> EnvT:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class EnvWrapper(Env):
    """Changes an environment from outside; what it does not define comes from ``self.env``.

    Reading an attribute looks it up in the wrapped environment at that moment (nothing is copied, so values never
    go stale). A wrapper with state of its own extends :meth:`get_state` and :meth:`set_state`.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        # Class attributes of Env, which __getattr__ never gets to see.
        self.env_id = env.env_id
        if type(self).cost == Env.cost:  # a wrapper costs what it wraps, unless it says otherwise
            self.cost = env.cost  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal lookup fails. Private names stay private: copy and pickle probe for them
        # before __init__ has run, when `env` does not exist yet.
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        return reset_env(self.env, seed, options)

    def step(self, action: str) -> StepTuple:
        return self.env.step(action)

    def seed(self, seed: int) -> None:
        self.env.seed(seed)

    @property
    def rng(self) -> random.Random:
        return self.env.rng

    @property
    def action_rng(self) -> random.Random:
        return self.env.action_rng

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    def get_state(self) -> dict[str, Any]:
        return {"env": self.env.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.env.set_state(state["env"])

    def spawn(self: EnvT, same_state: bool = False, **overrides: Any) -> EnvT:
        """As :meth:`Env.spawn`; the overrides go to the innermost environment, the wrappers are built again."""
        assert isinstance(self, EnvWrapper)
        args, kwargs = self._init_args
        inner = self.env.spawn(**overrides)
        if "env" in kwargs:
            sibling = type(self)(*args, **{**kwargs, "env": inner})
        else:
            sibling = type(self)(inner, *args[1:], **kwargs)
        if same_state:
            sibling.set_state(self.get_state())
        return sibling

    def close(self) -> None:
        self.env.close()

    @property
    def unwrapped(self) -> Env:
        return self.env.unwrapped


def reset_env(env: Env, seed: int | None, options: dict[str, Any] | None) -> tuple[str, Info]:
    """Calls ``env.reset``; ``options`` only where there are any, so that GEM's ``reset(self, seed)`` works too."""
    if options:
        return env.reset(seed=seed, options=options)
    return env.reset(seed=seed)


def check_seed(seed: int) -> int:
    """Returns ``seed`` as an int, or raises ValueError naming it."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}") from None
    if isinstance(seed, bool) or value < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}")
    return value


def check_keywords(target: Any, kwargs: dict[str, Any], name: str) -> None:
    """Raises ValueError for a keyword that ``target`` (a class or function) does not take, naming the nearest."""
    if not kwargs:
        return
    import difflib
    import inspect

    try:
        # A class's own signature() would be that of Env.__new__, which takes anything.
        parameters = inspect.signature(target.__init__ if inspect.isclass(target) else target).parameters
    except (TypeError, ValueError):  # a builtin without a signature checks for itself
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [n for n, p in parameters.items() if n != "self" and p.kind is not p.POSITIONAL_ONLY]
    for key in kwargs:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            takes = ", ".join(known) or "no arguments"
            raise ValueError(f"{name} has no argument {key!r}{hint} (it takes: {takes})")


def rng_state(rng: random.Random) -> list[Any]:
    """A generator's state as JSON-able lists."""
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]


def rng_from_state(state: list[Any]) -> random.Random:
    """The inverse of :func:`rng_state`."""
    rng = random.Random()
    rng.setstate((state[0], tuple(state[1]), state[2]))
    return rng

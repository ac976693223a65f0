"""Procedural reasoning tasks of the package ``reasoning-gym`` (``rg:``; https://github.com/open-thought/reasoning-gym)."""

from __future__ import annotations

import copy
import dataclasses
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gem_core.core import Env, Info, StepTuple, rng_from_state, rng_state
from gem_core.envs.dataset_env import check_prompt, shuffled
from gem_core.grading.answers import last_answer
from gem_core.grading.workers import JobFailed, shared_pool

#: Seconds that scoring one answer may take.
DEFAULT_TIMEOUT = 5.0
_HANDLER = "gem_core.envs.reasoning_gym_worker:score"
# Their generators take tenths of a second to build and depend on the seed only through these two attributes (tested),
# so one is built for the process and copied.
_COPIED = frozenset({"arc_agi", "codeio", "figlet_font", "group_anagrams", "spell_backward", "word_ladder"})
# These seed the global NumPy generator as they make an instance (tested for all tasks).
_GLOBAL_NUMPY = frozenset({"pool_matrix"})
_built: dict[str, Any] = {}
_lock = threading.RLock()


class ReasoningGymEnv(Env):
    r"""One instance, one turn: the observation is its question, and the answer ends the episode (``terminated``).

    The answer is the last complete ``\boxed{...}`` or ``<answer>...</answer>`` of the action, whichever stands last.
    The reward is the task's own ``score_answer``, in [0, 1], partial credit included. It runs in a worker process under
    a limit on time and memory: some scorers can be made to run away (``rubiks_cube`` expands ``R999999999`` move by
    move). ``info`` after ``step``: ``success`` and ``correct`` (score 1.0), ``verdict`` (``equal``, ``partial``,
    ``different``, ``no_answer``, ``time_limit``, ``memory_limit``, ``error``, ``crashed``), ``answer``.

    Every ``reset`` makes a fresh instance from the environment's generator, so they do not run out; with ``size`` they
    come from a fixed list instead.
    """

    cost = "computes"

    def __init__(
        self,
        name: str,
        size: int | None = None,
        seed: int = 42,
        config: dict[str, Any] | None = None,
        prompt: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Args:
        name: A task of the installed version; :func:`task_names`.
        size: Play a fixed list of so many instances (made from ``seed``), each once a pass; None for fresh ones.
            ``reset(options={"index": i})`` then picks one.
        seed: Of the list, or of the fresh instances until ``reset(seed=...)``.
        config: Parameters of the task, as its config class takes them.
        prompt: A text with ``{question}`` in it to show instead of the bare question.
        timeout: Seconds that scoring an answer may take.

        Raises:
            ValueError: no such task, or a parameter that it does not take.
            ImportError: reasoning-gym is not installed.
        """
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"size must be a positive integer or None, got {size!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.name, self.size, self.timeout = name, size, timeout
        self.config = dict(config or {})
        self.prompt = check_prompt(prompt)
        self.seed(seed)
        self._list_seed = seed
        self._order_seed, self.epoch, self.position = seed, 0, 0
        self.instance = -1
        self.entry: dict[str, Any] = {}
        self._playing = False
        with _lock:
            build_dataset(name, seed, size or 1, self.config)  # a wrong name or parameter shows here, not at reset

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        if seed is not None:
            self.seed(seed)
            self._order_seed, self.epoch, self.position = seed, 0, 0
        self.instance = self._next_instance(options)
        self._load()
        self._playing = True
        return self._observation(), self._info(False)

    def step(self, action: str) -> StepTuple:
        if not self._playing:
            raise RuntimeError("ReasoningGymEnv: the episode is over or was never started; call reset()")
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}")
        self._playing = False
        answer = last_answer(action)
        score, verdict = 0.0, "no_answer"
        if answer:
            try:
                job = (self.name, self.config, self.entry, answer)
                score = float(shared_pool(_HANDLER).run(job, self.timeout))
                verdict = "equal" if score >= 1 else "partial" if score > 0 else "different"
            except JobFailed as e:
                verdict = e.reason
        text = "Correct." if score >= 1 else f"Not correct ({verdict.replace('_', ' ')})."
        return text, score, True, False, {**self._info(score >= 1), "verdict": verdict, "answer": answer}

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.action_rng.randint(-100, 100)}}}"

    def get_state(self) -> dict[str, Any]:
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "order_seed": self._order_seed,
            "epoch": self.epoch,
            "position": self.position,
            "instance": self.instance,
            "playing": self._playing,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self._order_seed, self.epoch, self.position = state["order_seed"], state["epoch"], state["position"]
        self.instance, self._playing = state["instance"], state["playing"]
        if self.instance >= 0:
            self._load()

    # -- instances --------------------------------------------------------------------------------------------

    def _next_instance(self, options: dict[str, Any] | None) -> int:
        """The number in the list, or the seed of a fresh instance."""
        if options:
            if unknown := sorted(set(options) - {"index"}):
                raise ValueError(f"ReasoningGymEnv.reset() takes the option 'index', got {unknown}")
            index = options["index"]
            if self.size is None:
                raise ValueError("the option 'index' needs a fixed list: make the environment with size=")
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < self.size:
                raise ValueError(f"index must be an integer from 0 to {self.size - 1}, got {index!r}")
            return index
        if self.size is None:
            return self.rng.randrange(2**31)  # NumPy takes no seed beyond 32 bits
        if self.position >= self.size:
            self.epoch, self.position = self.epoch + 1, 0
        self.position += 1
        return shuffled(self.position - 1, self.size, f"{self._order_seed}:{self.epoch}")

    def _load(self) -> None:
        if self.size is None:
            self.entry = make_entry(self.name, self.instance, 1, 0, self.config)
        else:
            self.entry = make_entry(self.name, self._list_seed, self.size, self.instance, self.config)

    def _observation(self) -> str:
        question = str(self.entry["question"])
        return question if self.prompt is None else self.prompt.replace("{question}", question)

    def _info(self, correct: bool) -> Info:
        return {"success": correct, "correct": correct, "instance": self.instance, "epoch": self.epoch}


def task_names() -> list[str]:
    """All tasks of the installed version.

    Raises:
        ImportError: reasoning-gym is not installed.
    """
    return sorted(_package().factory.DATASETS)


def make_entry(name: str, seed: int, size: int, index: int, config: dict[str, Any]) -> dict[str, Any]:
    """One instance: a dict with ``question``, ``answer`` and ``metadata``. The global random state is untouched."""
    with _lock:
        dataset = build_dataset(name, seed, size, config)
        with _kept_numpy_state(name):
            entry: dict[str, Any] = dataset[index]
    return entry


def build_dataset(name: str, seed: int, size: int, config: dict[str, Any]) -> Any:
    """The package's own dataset object; see :class:`ReasoningGymEnv` for the errors."""
    package = _package()
    if name not in package.factory.DATASETS:
        import difflib

        near = difflib.get_close_matches(str(name), task_names(), n=3)
        raise ValueError(f"reasoning-gym has no task {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    if name not in _COPIED:
        return _create(package, name, seed, size, config)
    key = json.dumps([name, config], sort_keys=True, default=repr)
    if key not in _built:
        _built[key] = _create(package, name, 0, 1, config)
    dataset = copy.copy(_built[key])
    dataset.seed, dataset.size = seed, size
    dataset.config = dataclasses.replace(dataset.config, seed=seed, size=size)
    return dataset


def _create(package: ModuleType, name: str, seed: int, size: int, config: dict[str, Any]) -> Any:
    if name == "composite":
        specs = [package.composite.DatasetSpec(**d) if isinstance(d, dict) else d for d in config.get("datasets", ())]
        config = {**config, "datasets": specs}
    try:
        with _kept_numpy_state(name):
            return package.create_dataset(name, **{**config, "seed": seed, "size": size})
    except (TypeError, AssertionError, ValueError) as e:
        raise ValueError(f"reasoning-gym's task {name!r} refuses config={config!r}: {e}") from e


def _package() -> ModuleType:
    try:
        import reasoning_gym  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import reasoning_gym.composite  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import reasoning_gym.factory  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError as e:
        raise ImportError(
            f"the rg: environments need the package {e.name!r}: pip install 'gem-adapters[math]'", name=e.name
        ) from e
    package: ModuleType = reasoning_gym
    return package


@contextmanager
def _kept_numpy_state(name: str) -> Iterator[None]:
    if name not in _GLOBAL_NUMPY:
        yield
        return
    import numpy as np

    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002

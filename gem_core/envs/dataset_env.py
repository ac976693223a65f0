"""What environments on a dataset share: which row comes next, one turn, saved state."""

from __future__ import annotations

import abc
import hashlib
import random
from typing import Any, ClassVar

from gem_core.core import Env, Info, StepTuple, check_seed, rng_from_state, rng_state
from gem_core.envs.dataset_loading import Table, load_table

_SAMPLE_COLUMNS = {"question_key": "question", "answer_key": "answer", "test_key": "tests", "image_key": "images"}


class DatasetEnv(Env):
    """One row, one turn: the observation is the row's question, and the answer ends the episode (``terminated``).

    Which row:

    - ``reset(options={"index": i})``: row ``i``; the pass below is not disturbed.
    - ``reset()``: the next row of a pass over the whole dataset, no row twice, then another pass in another order.
      The order follows from the seed (with ``eval=True``: the dataset's own order).
    - ``reset(seed=s)``: begins a pass whose order follows from ``s``; so it picks a row by ``s`` alone.

    ``info`` after ``reset``: ``index`` (the row), ``epoch``, ``success`` and ``correct`` (both False). After ``step``
    also ``verdict`` (a short word why) and what the subclass adds.
    """

    #: The shipped sample that ``dataset_name="sample"`` stands for.
    sample: ClassVar[str] = ""

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Any = None,
        *,
        columns: dict[str, str],
        seed: int = 0,
        eval: bool = False,
    ) -> None:
        """Args:
        dataset_name, split, dataset: See :func:`gem_core.envs.dataset_loading.load_table`; ``"sample"`` is a small
            sample that ships with the package, whose columns fit any ``columns``.
        columns: The constructor argument that names a column -> that name; for messages.
        seed: Order of the passes until ``reset(seed=...)`` gives another.
        eval: Keep the dataset's own order.

        Raises:
            ValueError: a column that is not there (the message lists those that are), or see ``load_table``.
        """
        self._order_seed = check_seed(seed)
        if dataset_name == "sample":
            dataset_name = f"sample:{self.sample_name()}"
        self.table: Table = load_table(dataset_name, split, dataset)
        is_sample = dataset is None and str(dataset_name).startswith("sample:")
        columns = self.column_names(columns)
        self._columns = {k: _SAMPLE_COLUMNS[k] if is_sample else v for k, v in columns.items()}
        for argument, column in self._columns.items():
            if column not in self.table.columns:
                raise ValueError(
                    f"{self.table.label} has no column {column!r} ({argument}); its columns are: "
                    f"{', '.join(map(repr, self.table.columns))}"
                )
        self.eval = eval
        self.epoch = self.position = 0
        self.index = -1
        self._playing = False

    def sample_name(self) -> str:
        return self.sample

    def column_names(self, columns: dict[str, str]) -> dict[str, str]:
        """``columns`` with what a subclass adds."""
        return columns

    @property
    def dataset(self) -> Any:
        """The rows."""
        return self.table.rows

    # -- what a task defines ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def begin(self) -> str:
        """Takes in the row ``self.index`` and returns the observation."""

    @abc.abstractmethod
    def grade(self, action: str) -> tuple[float, bool, Info]:
        """Returns the reward, whether the answer is correct, and what goes into ``info`` (with ``verdict``)."""

    # -- rows -------------------------------------------------------------------------------------------------

    def cell(self, argument: str) -> Any:
        """The current row's value in the column that the constructor argument ``argument`` names."""
        row, column = self.table.rows[self.index], self._columns[argument]
        try:
            return row[column]
        except (KeyError, TypeError):  # rows of a plain list need not all look like the first
            raise ValueError(f"{self.table.label}: row {self.index} has no {column!r} ({argument})") from None

    def question(self, prompt: str | None) -> str:
        """The row's question, put where ``prompt`` says ``{question}``."""
        text = self.cell("question_key")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{self.table.label}: row {self.index} has no question, but {text!r}")
        return text if prompt is None else prompt.replace("{question}", text)

    def _next_index(self) -> int:
        size = len(self.table.rows)
        if self.position >= size:
            self.epoch, self.position = self.epoch + 1, 0
        index = self.position
        if not self.eval:
            index = shuffled(index, size, f"{self._order_seed}:{self.epoch}")
        self.position += 1
        return index

    # -- the contract -----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        if seed is not None:
            self.seed(seed)
            self._order_seed, self.epoch = seed, 0
            # In its own order a seed still picks a row: the pass goes on from there.
            self.position = random.Random(seed).randrange(len(self.table.rows)) if self.eval else 0
        index = self._wanted(options)
        self.index = self._next_index() if index is None else index
        observation = self.begin()
        self._playing = True
        return observation, self._info(False)

    def _wanted(self, options: dict[str, Any] | None) -> int | None:
        if not options:
            return None
        if unknown := sorted(set(options) - {"index"}):
            raise ValueError(f"{type(self).__name__}.reset() takes the option 'index', got {unknown}")
        index, size = options["index"], len(self.table.rows)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < size:
            raise ValueError(f"index must be an integer from 0 to {size - 1}, got {index!r}")
        return index

    def step(self, action: str) -> StepTuple:
        if not self._playing:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}")
        reward, correct, extra = self.grade(action)
        self._playing = False
        text = "Correct." if correct else f"Not correct ({str(extra['verdict']).replace('_', ' ')})."
        return text, reward, True, False, {**self._info(correct), **extra}

    def get_state(self) -> dict[str, Any]:
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "order_seed": self._order_seed,
            "epoch": self.epoch,
            "position": self.position,
            "index": self.index,
            "playing": self._playing,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        size = len(self.table.rows)
        if not -1 <= state["index"] < size:
            raise ValueError(f"the state is of row {state['index']}, {self.table.label} has {size}")
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self._order_seed, self.epoch, self.position = state["order_seed"], state["epoch"], state["position"]
        self.index, self._playing = state["index"], state["playing"]
        if self.index >= 0:
            self.begin()

    def _info(self, correct: bool) -> Info:
        return {"success": correct, "correct": correct, "index": self.index, "epoch": self.epoch}


def check_prompt(prompt: str | None) -> str | None:
    """Returns ``prompt``; ValueError where it has no place for the question."""
    if prompt is not None and "{question}" not in prompt:
        raise ValueError(f"prompt must contain '{{question}}', got {prompt!r}")
    return prompt


def shuffled(position: int, size: int, key: str) -> int:
    """Where ``position`` goes in a permutation of ``range(size)`` that follows from ``key``.

    A Feistel network over the next power of four, walked until it lands inside (Black and Rogaway 2002): no list of
    ``size`` numbers for each of thousands of environments.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = position >> half, position & mask
        for round_number in range(4):
            digest = hashlib.blake2b(f"{key}:{round_number}:{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        position = left << half | right
        if position < size:
            return position

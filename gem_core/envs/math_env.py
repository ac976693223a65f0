"""Mathematics questions with a reference answer (``math:``, ``eval:MATH500`` and its like)."""

from __future__ import annotations

from typing import Any

from gem_core.core import Info
from gem_core.envs.dataset_env import DatasetEnv, check_prompt
from gem_core.grading.math import DEFAULT_TIMEOUT, gold_answers, grade_math


class MathEnv(DatasetEnv):
    r"""One question; the last ``\boxed{...}`` of the action is graded by :func:`gem_core.grading.math.grade_math`.

    Reward 1.0 for an answer equal to the reference, else 0.0. ``info`` after ``step``: ``success``, ``correct``,
    ``verdict`` (see :class:`~gem_core.grading.math.MathVerdict`), ``answer`` (what was in the box), ``gold``.
    """

    sample = "math"
    cost = "waits"  # for a worker process; threads share one pool of them

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Any = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        seed: int = 0,
        use_mp: bool = True,
        eval: bool = False,
        prompt: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Args:
        dataset_name, split, dataset: See :func:`gem_core.envs.dataset_loading.load_table`.
        question_key, answer_key: Columns of the question and of its reference (a string, a number, or a list of
            which any will do).
        seed, eval: Order of the rows, see :class:`~gem_core.envs.dataset_env.DatasetEnv`.
        use_mp: Accepted for programs written for GEM 0.1; grading is always time-limited.
        prompt: A text with ``{question}`` in it to show instead of the bare question.
        timeout: Seconds that grading an answer may take.
        """
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.prompt = check_prompt(prompt)
        self.timeout = timeout
        columns = {"question_key": question_key, "answer_key": answer_key}
        super().__init__(dataset_name, split, dataset, columns=columns, seed=seed, eval=eval)
        self.gold: list[str] = []

    def begin(self) -> str:
        try:
            self.gold = gold_answers(self.cell("answer_key"))
        except ValueError as e:
            raise ValueError(f"{self.table.label}: row {self.index}: {e}") from None
        return self.question(self.prompt)

    def grade(self, action: str) -> tuple[float, bool, Info]:
        verdict = grade_math(action, self.gold, timeout=self.timeout)
        info = {"verdict": verdict.reason, "answer": verdict.answer, "gold": self.gold}
        return float(verdict.correct), verdict.correct, info

    @staticmethod
    def check_correct(model_answer: str, gt_answer: Any) -> bool:
        r"""True where the last ``\boxed{...}`` of ``model_answer`` equals ``gt_answer`` (or one of a list)."""
        return grade_math(model_answer, gt_answer).correct

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.action_rng.randint(-100, 100)}}}"

"""Questions with short textual answers (``qa:``, ``logic:``, ``eval:TriviaQA`` and its like)."""

from __future__ import annotations

from typing import Any, Literal

from gem_core.core import Info
from gem_core.envs.dataset_env import DatasetEnv, check_prompt
from gem_core.grading.answers import last_boxed, last_tagged
from gem_core.grading.qa import exact_match, gold_strings, grade_qa

_TAGGED_PROMPT = (
    "Think the question through between <think> and </think>, then give only the final answer between <answer> and "
    "</answer>.\n\nQuestion: {question}"
)
_BOXED_PROMPT = "Think the question through, then give only the final answer inside \\boxed{}.\n\nQuestion: {question}"
_WORDS = ("Paris", "1969", "blue", "yes", "Marie Curie", "the Nile", "42", "gold")


class QaEnv(DatasetEnv):
    r"""One question; the text in the last ``<answer>...</answer>`` (or ``\boxed{...}``) is graded.

    Reward 1.0 for an exact match with one of the references after SQuAD's normalisation, else 0.0; with
    ``reward="f1"`` the token F1. ``info`` after ``step``: ``success`` and ``correct`` (exact match), ``verdict``
    (``equal``, ``different``, ``no_answer``), ``f1``, ``answer``, ``gold``.
    """

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Any = None,
        question_key: str = "question",
        answer_key: str = "answer",
        seed: int = 0,
        extract_boxed: bool = False,
        load_from_cache_file: bool = True,
        eval: bool = False,
        prompt: str | None = "",
        reward: Literal["exact", "f1"] = "exact",
    ) -> None:
        r"""Args:
        dataset_name, split, dataset: See :func:`gem_core.envs.dataset_loading.load_table`.
        question_key, answer_key: Columns of the question and of its reference (a string, a number, or a list of
            which any will do).
        seed, eval: Order of the rows, see :class:`~gem_core.envs.dataset_env.DatasetEnv`.
        extract_boxed: Read the answer from ``\boxed{...}`` instead of ``<answer>`` tags.
        load_from_cache_file: Accepted for programs written for GEM 0.1; prompts are put around questions as they come.
        prompt: A text with ``{question}`` in it; "" for the one that asks for the form of the answer, None for the
            bare question.
        reward: What a wrong answer may still earn: ``"exact"`` nothing, ``"f1"`` its token F1.
        """
        if reward not in ("exact", "f1"):
            raise ValueError(f"reward must be 'exact' or 'f1', got {reward!r}")
        self.extract_boxed = extract_boxed
        self.prompt = check_prompt((_BOXED_PROMPT if extract_boxed else _TAGGED_PROMPT) if prompt == "" else prompt)
        self.reward = reward
        columns = {"question_key": question_key, "answer_key": answer_key}
        super().__init__(dataset_name, split, dataset, columns=columns, seed=seed, eval=eval)
        self.gold: list[str] = []

    def sample_name(self) -> str:
        return "logic" if self.extract_boxed else "qa"

    def begin(self) -> str:
        try:
            self.gold = gold_strings(self.cell("answer_key"))
        except ValueError as e:
            raise ValueError(f"{self.table.label}: row {self.index}: {e}") from None
        return self.question(self.prompt)

    def grade(self, action: str) -> tuple[float, bool, Info]:
        answer = last_boxed(action) if self.extract_boxed else last_tagged(action)
        if not answer:
            return 0.0, False, {"verdict": "no_answer", "f1": 0.0, "answer": None, "gold": self.gold}
        verdict = grade_qa(answer, self.gold)
        reward = verdict.f1 if self.reward == "f1" else float(verdict.exact)
        reason = "equal" if verdict.exact else "different"
        return reward, verdict.exact, {"verdict": reason, "f1": verdict.f1, "answer": answer, "gold": self.gold}

    @staticmethod
    def check_correct(model_answer: str, gt_answer: Any) -> bool:
        """True where the bare answer matches ``gt_answer`` (or one of a list) exactly after normalisation."""
        return exact_match(model_answer, gt_answer)

    def sample_random_action(self) -> str:
        if self.extract_boxed:
            return f"\\boxed{{{self.action_rng.choice(('True', 'False'))}}}"
        return f"<answer>{self.action_rng.choice(_WORDS)}</answer>"

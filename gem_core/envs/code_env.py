"""Programming problems with tests (``code:``, ``eval:CodeContest``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gem_core.core import Info
from gem_core.envs.dataset_env import DatasetEnv, check_prompt

#: Reward of an action without a code block, as in GEM 0.1.
NO_CODE_REWARD = -0.1


class CodeEnv(DatasetEnv):
    """One problem; the last fenced code block of the action is run on the problem's tests in the sandbox.

    Reward 1.0 where all tests pass, -0.1 without a code block, else 0.0 (with ``reward="share"`` the share of tests
    passed). ``info`` after ``step``: ``success``, ``correct``, ``verdict`` (``accepted``, or why not, see
    :class:`gem_core.grading.code.CodeVerdict`), ``passed``, ``total``, ``details``.

    Tests are a mapping, or its JSON, with ``inputs`` and ``outputs`` of equal length (standard input and output, a
    string or a list of lines each) and ``fn_name`` where a function is to be called.
    """

    sample = "code"
    cost = "waits"  # the program runs in a process of its own

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: Any = None,
        question_key: str = "problem",
        test_key: str = "tests",
        seed: int = 0,
        max_workers: int = 5,
        max_tests: int = 12,
        verbose: bool = False,
        sandbox_type: str = "none",
        eval: bool = False,
        prompt: str | None = None,
        timeout: float = 10.0,
        reward: str = "all",
    ) -> None:
        """Args:
        dataset_name, split, dataset: See :func:`gem_core.envs.dataset_loading.load_table`.
        question_key, test_key: Columns of the problem and of its tests.
        seed, eval: Order of the rows, see :class:`~gem_core.envs.dataset_env.DatasetEnv`.
        max_workers, verbose, sandbox_type: Accepted for programs written for GEM 0.1; programs always run in the
            sandbox (:mod:`gem_core.sandbox`), which has its own workers.
        max_tests: Of more tests, those with the longest inputs are run.
        prompt: A text with ``{question}`` in it to show instead of the bare problem.
        timeout: Seconds that one test may take.
        reward: ``"all"`` or ``"share"``.
        """
        if isinstance(max_tests, bool) or not isinstance(max_tests, int) or max_tests < 1:
            raise ValueError(f"max_tests must be a positive integer, got {max_tests!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if reward not in ("all", "share"):
            raise ValueError(f"reward must be 'all' or 'share', got {reward!r}")
        self.max_tests, self.timeout, self.reward = max_tests, timeout, reward
        self.prompt = check_prompt(prompt)
        columns = {"question_key": question_key, "test_key": test_key}
        super().__init__(dataset_name, split, dataset, columns=columns, seed=seed, eval=eval)
        self.tests: dict[str, Any] = {}

    def begin(self) -> str:
        try:
            self.tests = _longest(parse_tests(self.cell("test_key")), self.max_tests)
        except ValueError as e:
            raise ValueError(f"{self.table.label}: row {self.index}: {e}") from None
        return self.question(self.prompt)

    def grade(self, action: str) -> tuple[float, bool, Info]:
        from gem_core.grading.code import extract_code, grade_code

        program = extract_code(action)
        total = len(self.tests["inputs"])
        if not program:
            return NO_CODE_REWARD, False, {"verdict": "no_code", "passed": 0, "total": total, "details": []}
        result = grade_code(program, self.tests, timeout=self.timeout)
        correct = result.verdict == "accepted"
        share = result.passed / result.total if self.reward == "share" and result.total else 0.0
        info = {"verdict": result.verdict, "passed": result.passed, "total": result.total, "details": result.details}
        return 1.0 if correct else share, correct, info

    def sample_random_action(self) -> str:
        program = self.action_rng.choice(("print(input())", "print(sum(map(int, input().split())))", "print(0)"))
        return f"```python\n{program}\n```"


def parse_tests(tests: Any) -> dict[str, Any]:
    """The tests as a dict with lists ``inputs`` and ``outputs``.

    Raises:
        ValueError: not of that form, or no tests.
    """
    if isinstance(tests, (str, bytes)):
        try:
            tests = json.loads(tests)
        except json.JSONDecodeError as e:
            raise ValueError(f"the tests are not JSON: {e}") from None
    if not isinstance(tests, Mapping) or not {"inputs", "outputs"} <= set(tests):
        found = sorted(tests) if isinstance(tests, Mapping) else type(tests).__name__
        raise ValueError(f"tests are a mapping with 'inputs' and 'outputs', got {found}")
    inputs, outputs = list(tests["inputs"]), list(tests["outputs"])
    if len(inputs) != len(outputs) or not inputs:
        raise ValueError(f"tests need as many outputs as inputs and at least one, got {len(inputs)} and {len(outputs)}")
    return {**tests, "inputs": inputs, "outputs": outputs}


def _longest(tests: dict[str, Any], most: int) -> dict[str, Any]:
    inputs = tests["inputs"]
    if len(inputs) <= most:
        return tests
    chosen = sorted(range(len(inputs)), key=lambda i: -len(str(inputs[i])))[:most]
    return {**tests, "inputs": [inputs[i] for i in chosen], "outputs": [tests["outputs"][i] for i in chosen]}

"""The ids of the dataset environments (``math:``, ``code:``, ``logic:``, ``qa:``, ``eval:``).

The names of the datasets are those of GEM 0.1. Give ``dataset_name=`` a local path, or ``"sample"``, to play an id
without a network.
"""

from __future__ import annotations

from collections.abc import Iterable

from gem_core.registration import EnvSpec

_MATH = "gem_core.envs.math_env:MathEnv"
_VISUAL = "gem_core.envs.math_visual_env:MathVisualEnv"
_CODE = "gem_core.envs.code_env:CodeEnv"
_QA = "gem_core.envs.qa_env:QaEnv"


def _spec(env_id: str, dataset: str, split: str | None, question: str, summary: str, entry_point: str) -> EnvSpec:
    is_code, boxed = entry_point == _CODE, env_id.startswith("logic:")
    kwargs = {"dataset_name": dataset, "split": split, "question_key": question}
    kwargs["test_key" if is_code else "answer_key"] = "tests" if is_code else "answer"
    if entry_point == _VISUAL:
        kwargs["image_key"] = "images"
    return EnvSpec(
        id=env_id,
        entry_point=entry_point,
        kwargs={**kwargs, "extract_boxed": True} if boxed else kwargs,
        max_turns=1,
        reward_range=(-0.1 if is_code else 0.0, 1.0),
        extra="vision" if entry_point == _VISUAL else "code" if is_code else "math",
        cost="cheap" if entry_point == _QA else "waits",
        summary=summary,
    )


def _math(env_id: str, dataset: str, split: str | None, summary: str) -> EnvSpec:
    return _spec(env_id, dataset, split, "problem", summary, _MATH)


def _code(env_id: str, dataset: str, split: str, summary: str) -> EnvSpec:
    return _spec(env_id, dataset, split, "problem", summary, _CODE)


def _qa(env_id: str, dataset: str, split: str, question: str, summary: str) -> EnvSpec:
    return _spec(env_id, dataset, split, question, summary, _QA)


_SEARCH_EVAL = {
    "2Wiki": "2wiki",
    "PopQA": "popqa",
    "TriviaQA": "tq",
    "HotpotQA": "hotpotqa",
    "Bamboogle": "bamboogle",
    "NaturalQuestions": "nq",
    "Musique": "musique",
}
_SPECS: list[EnvSpec] = [
    _math("math:ASDiv2K", "axon-rl/ASDIV-2k", None, "elementary word problems"),
    _math("math:GSM8K", "axon-rl/GSM-8k", None, "grade-school word problems"),
    _math("math:Math12K", "axon-rl/MATH-12k", None, "competition problems of the MATH dataset"),
    _math("math:Math8K-3to5", "axon-rl/MATH-lvl3to5-8k", None, "competition problems of MATH, levels 3 to 5"),
    _math("math:Orz57K", "axon-rl/ORZ-57k", None, "the problems of Open-Reasoner-Zero"),
    _math("math:DeepScaleR40K", "axon-rl/DeepScaleR-40K", None, "the problems of DeepScaleR"),
    _spec("math:Geometry3K", "axon-rl/geometry3k", "train", "problem", "geometry problems with pictures", _VISUAL),
    _code("code:CodeContest", "axon-rl/CodeContest", "train", "programming contests"),
    _code("code:Taco8k", "axon-rl/TACO-8k", "train", "programming problems of TACO"),
    _code("code:PrimeIntellect15k", "axon-rl/PrimeIntellect-15k", "train", "programming problems of PrimeIntellect"),
    *(
        _qa(
            f"logic:RuleTaker-d{d}",
            f"axon-rl/RuleTaker-d{d}-70k",
            "train",
            "question",
            f"{d}-step deduction from rules",
        )
        for d in (0, 1, 2, 3, 5)
    ),
    _qa("qa:NaturalQuestions", "axon-rl/NaturalQuestions", "train", "problem", "questions asked of a search engine"),
    _qa("qa:HotpotQA", "axon-rl/HotpotQA", "train", "problem", "questions that need two documents"),
    *(
        _math(f"eval:{name}", "axon-rl/math-eval", split, "held-out mathematics")
        for name, split in {
            "MATH500": "math",
            "AMC": "amc",
            "OlympiadBench": "olympiad_bench",
            "Minerva": "minerva",
            "AIME24": "aime24",
        }.items()
    ),
    _code("eval:CodeContest", "axon-rl/CodeContest", "test", "held-out programming contests"),
    _qa("eval:QaOpen", "google-research-datasets/nq_open", "validation", "question", "held-out open questions"),
    *(
        _qa(f"eval:{name}", "axon-rl/search-eval", split, "question", "held-out questions, 512 a source")
        for name, split in _SEARCH_EVAL.items()
    ),
]
_BY_ID = {s.id: s for s in _SPECS}


def list_ids() -> Iterable[str]:
    return list(_BY_ID)


def find_spec(env_id: str) -> EnvSpec | None:
    return _BY_ID.get(env_id)

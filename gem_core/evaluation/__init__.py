"""Evaluating policies: many episodes at once, crash-safe, with intervals.

::

    from gem_core.evaluation import OpenAIPolicy, compare, evaluate

    policy = OpenAIPolicy("Qwen/Qwen3-8B", base_url="http://localhost:8000/v1", requests_per_minute=600)
    ids = ["game:Wordle-v0-easy", "game:Hangman-v0-easy"]
    result = evaluate(ids, policy, episodes=200, samples=4, log="runs/qwen3-8b")
    print(result.to_markdown())
    print(compare(result, evaluate(ids, "random", episodes=200)).to_markdown())
"""

from __future__ import annotations

from gem_core.evaluation.compare import Comparison, Difference, compare
from gem_core.evaluation.endpoint import EndpointStats, OpenAIPolicy
from gem_core.evaluation.errors import ContextLengthError, EndpointError, EndpointUnusableError, PolicyUnusableError
from gem_core.evaluation.evaluate import evaluate
from gem_core.evaluation.human import HumanPolicy, PlayerQuitError
from gem_core.evaluation.plan import Plan, plan_tasks
from gem_core.evaluation.players import ModelOptions, Player, load_player
from gem_core.evaluation.records import EpisodeRecord
from gem_core.evaluation.results import EnvResult, EvalResult, Intervals
from gem_core.evaluation.statistics import Estimate, pass_at_k

__all__ = [
    "Comparison",
    "ContextLengthError",
    "Difference",
    "EndpointError",
    "EndpointStats",
    "EndpointUnusableError",
    "EnvResult",
    "EpisodeRecord",
    "Estimate",
    "EvalResult",
    "HumanPolicy",
    "Intervals",
    "ModelOptions",
    "OpenAIPolicy",
    "Plan",
    "Player",
    "PlayerQuitError",
    "PolicyUnusableError",
    "compare",
    "evaluate",
    "load_player",
    "pass_at_k",
    "plan_tasks",
]

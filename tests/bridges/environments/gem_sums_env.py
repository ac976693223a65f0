"""A small environment for verifiers 0.1 and 0.2: name a sum, with one hint after a wrong answer."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


class Sums(vf.MultiTurnEnv):
    async def setup_state(self, state: Any, **kwargs: Any) -> Any:
        return state

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        return [{"role": "user", "content": f"Not {_text(messages[-1])}. Once more."}]

    @vf.stop
    async def solved(self, state: Any) -> bool:
        return bool(state["trajectory"]) and state["answer"] in _text(state["trajectory"][-1]["completion"][-1])


def _text(message: Any) -> str:
    return str(message["content"] if isinstance(message, dict) else message.content).strip()


def right(completion: Any, answer: str, **kwargs: Any) -> float:
    return 1.0 if answer in _text(completion[-1]) else 0.0


def load_environment(rows: int = 3) -> vf.Environment:
    dataset = Dataset.from_list([{"question": f"{n} + {n} = ?", "answer": str(2 * n)} for n in range(10, 10 + rows)])
    return Sums(dataset=dataset, system_prompt="Answer with a number.", rubric=vf.Rubric(funcs=[right]), max_turns=2)

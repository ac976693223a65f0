"""A small taskset for ``verifiers.v1``: name a sum; a tool doubles numbers where ``tools`` asks for it."""

from __future__ import annotations

from collections.abc import Iterable

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return 1.0 if self.data.answer in str(trace.last_reply) else 0.0


class SumConfig(vf.TasksetConfig):
    rows: int = 3


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> Iterable[SumTask]:
        for n in range(10, 10 + self.config.rows):
            data = SumData(prompt=f"{n} + {n} = ?", system_prompt="Answer with a number.", answer=str(2 * n))
            yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]

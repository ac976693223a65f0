"""The measured side of vector.py: one process a library, asked by JSON lines; standard library and that library only.

The same four environments on each library's own base class:

* ``cheap`` reads a guess from the action and answers higher or lower: two microseconds;
* ``wait`` sleeps 5 to 50 ms, drawn anew each step (so 27.5 ms on average);
* ``compute`` does a millisecond of pure Python;
* ``slow`` is ``wait``, but one of its environments sleeps 2 s.

``game`` is each library's own ``game:GuessTheNumber-v0-easy``.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
import time
from typing import Any

MEAN_WAIT_S = 0.0275
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


class Task:
    """What the environments do, apart from any library."""

    def __init__(self, kind: str, index: int, loops: int) -> None:
        self.kind, self.loops = kind, loops
        self.slow = kind == "slow" and index == 0
        self.rng = random.Random(index)
        self.turn = self.target = 0

    def start(self) -> str:
        self.turn, self.target = 0, self.rng.randint(1, 20)
        return "Guess the number between 1 and 20."

    def play(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        if self.kind in ("wait", "slow"):
            time.sleep(2.0 if self.slow else self.rng.uniform(0.005, 0.05))
        elif self.kind == "compute":
            burn(self.loops)
        found = _BOXED.findall(action)
        guess = int(found[-1]) if found and found[-1].isdigit() else 0
        won = guess == self.target
        info = {"suffix": f"Guess {self.turn + 1} of 10.", "turn": self.turn}
        text = "right" if won else "The number is higher." if guess < self.target else "The number is lower."
        return text, float(won), won or self.turn >= 10, False, info


def burn(loops: int) -> int:
    total = 0
    for i in range(loops):
        total += i * i % 7
    return total


def calibrate() -> int:
    """Rounds of the loop that take a millisecond of CPU time here."""
    best = min(_timed(20_000) for _ in range(20))
    return int(20_000 * 0.001 / best)


def _timed(loops: int) -> float:
    begin = time.process_time()
    burn(loops)
    return time.process_time() - begin


def actions(n: int) -> list[str]:
    return [f"\\boxed{{{1 + i % 20}}}" for i in range(n)]


# -- sides ------------------------------------------------------------------------------------------------------------


def ours(kind: str, n: int, loops: int, how: str) -> Any:
    import gem_core
    from gem_core.core import Env
    from gem_core.vector import AsyncVectorEnv, SyncVectorEnv, VectorOptions

    if kind == "game":
        name = "game:GuessTheNumber-v0-easy"
        return [gem_core.make(name) for _ in range(n)] if how == "bare" else gem_core.make_vec([name] * n)

    class Bench(Env):
        def __init__(self, index: int) -> None:
            self.task = Task(kind, index, loops)

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
            return self.task.start(), {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return self.task.play(action)

    fns = [lambda i=i: Bench(i) for i in range(n)]  # type: ignore[misc]
    if how == "bare":
        return [fn() for fn in fns]
    if how == "sync":
        return SyncVectorEnv(["bench"] * n, fns)
    workers = 2 if how == "process" else None
    return AsyncVectorEnv(["bench"] * n, fns, VectorOptions(executor=how, workers=workers))  # type: ignore[arg-type]


def theirs(kind: str, n: int, loops: int, how: str) -> Any:
    import gem
    import gem.envs
    from gem.core import Env
    from gem.vector.async_vector_env import AsyncVectorEnv
    from gem.vector.sync_vector_env import SyncVectorEnv

    if kind == "game":
        name = "game:GuessTheNumber-v0-easy"
        if how == "bare":
            return [gem.make(name) for _ in range(n)]
        # Its make_vec passes a seed that its games do not take.
        return SyncVectorEnv([name] * n, [lambda: gem.make(name)] * n)

    class Bench(Env):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.task = Task(kind, index, loops)

        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            return self.task.start(), {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return self.task.play(action)

        def sample_random_action(self) -> str:
            return "\\boxed{1}"

    fns = [lambda i=i: Bench(i) for i in range(n)]  # type: ignore[misc]
    if how == "bare":
        return [fn() for fn in fns]
    return (SyncVectorEnv if how == "sync" else AsyncVectorEnv)(["bench"] * n, fns)


def farama(kind: str, n: int, loops: int, how: str) -> Any:
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    class Bench(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(21)

        def __init__(self, index: int) -> None:
            self.task = Task(kind, index, loops)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            self.task.start()
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            _, reward, terminated, truncated, info = self.task.play(f"\\boxed{{{action}}}")
            return 0, reward, terminated, truncated, {"turn": info["turn"]}

    fns = [lambda i=i: Bench(i) for i in range(n)]  # type: ignore[misc]
    if how == "bare":
        return [fn() for fn in fns]
    if how == "sync":
        return SyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)
    return AsyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)


SIDES = {"ours": ours, "gem": theirs, "gymnasium": farama}


# -- measurements -----------------------------------------------------------------------------------------------------


def bare(request: dict[str, Any]) -> float:
    """Steps a second in a plain loop over the same environments: the limit of the synchronous rows."""
    envs = SIDES[request["side"]](request["kind"], request["n"], request["loops"], "bare")
    for env in envs:
        env.reset()
    todo: Any = actions(len(envs)) if request["side"] != "gymnasium" else [1 + i % 20 for i in range(len(envs))]
    cheap = request["kind"] in ("cheap", "game")
    clock = time.process_time if cheap else time.perf_counter
    count, begin = 0, clock()
    while (now := clock()) - begin < request["seconds"]:
        for _ in range(20 if cheap else 1):
            observations, rewards, terminations, truncations, infos = [], [], [], [], []
            for env, action in zip(envs, todo):  # noqa: B905
                observation, reward, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    observation, info = env.reset()
                observations.append(observation)
                rewards.append(reward)
                terminations.append(terminated)
                truncations.append(truncated)
                infos.append(info)
            count += len(envs)
    return count / (now - begin)


def paired(request: dict[str, Any]) -> tuple[float, float]:
    """Steps a second of the synchronous vector and of the bare loop, in short turns of one process: on a busy machine
    the speed of a core changes within seconds."""
    side = SIDES[request["side"]]
    envs = side(request["kind"], request["n"], request["loops"], "sync")
    envs.reset(seed=0)
    short = {**request, "seconds": 0.05}
    pairs = [(lockstep(envs, short, set()), bare(short)) for _ in range(max(3, int(request["seconds"] / 0.1)))]
    pairs.sort(key=lambda p: p[0] / p[1])
    return pairs[len(pairs) // 2]


def two_processes(request: dict[str, Any]) -> float:
    """Steps a second of two plain processes at once: the limit of the compute row with two workers."""
    import subprocess

    one = {**request, "what": "bare"}
    command = [sys.executable, __file__]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return sum(json.loads(p.communicate(json.dumps(one) + "\n")[0])["rate"] for p in processes)


def lockstep(envs: Any, request: dict[str, Any], skip: set[int]) -> float:
    n = request["n"]
    todo: Any = actions(n)
    if request["side"] == "gymnasium":
        todo = [1 + i % 20 for i in range(n)]
    cheap = request["kind"] in ("cheap", "game")
    clock = time.process_time if cheap and request["how"] == "sync" else time.perf_counter
    count, begin = 0, clock()
    while (now := clock()) - begin < request["seconds"]:
        for _ in range(20 if cheap else 1):
            envs.step(todo)
            count += n - len(skip)
    return count / (now - begin)


def free_running(envs: Any, request: dict[str, Any], skip: set[int]) -> float:
    todo = actions(request["n"])
    envs.send(todo)
    end_warm = time.perf_counter() + 0.1
    count, begin = 0, 0.0
    while True:
        *_, env_ids = envs.recv(min_ready=request["min_ready"])
        envs.send([todo[i] for i in env_ids], env_ids)
        now = time.perf_counter()
        if begin == 0.0:
            if now < end_warm:
                continue
            begin = now
            continue
        count += sum(i not in skip for i in env_ids) if skip else len(env_ids)
        if now - begin >= request["seconds"]:
            return count / (now - begin)


def measure(request: dict[str, Any]) -> float:
    what, kind = request["what"], request["kind"]
    if what == "bare":
        return bare(request)
    if what == "two_processes":
        return two_processes(request)
    envs = SIDES[request["side"]](kind, request["n"], request["loops"], request["how"])
    try:
        envs.reset(seed=0)
        skip = {0} if kind == "slow" else set()
        return (free_running if what == "free" else lockstep)(envs, request, skip)
    finally:
        if hasattr(envs, "close"):
            envs.close()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # GEM prints
    for line in sys.stdin:
        request = json.loads(line)
        if request["what"] == "calibrate":
            print(json.dumps({"rate": calibrate()}), file=answers)
            continue
        if request["what"] == "paired":
            rate, base = paired(request)
            print(json.dumps({"rate": rate, "base": base}), file=answers)
            continue
        print(json.dumps({"rate": measure(request)}), file=answers)
    threading.Thread(target=lambda: (time.sleep(5), os._exit(0)), daemon=True).start()


if __name__ == "__main__":
    main()

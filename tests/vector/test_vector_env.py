"""Lockstep and free-running vectors: same episodes everywhere, autoreset modes, partial stepping."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import vector_support as vs

import gem_core as gem
from gem_core.core import Env, EnvWrapper
from gem_core.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorOptions
from gem_core.vector.executors import default_executor
from gem_core.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper

OBEDIENT, WAITING, COMPUTING = "test:Obedient-v0", "test:Waiting-v0", "test:Computing-v0"
#: Keywords of vectors that run everywhere but on Ray (see test_ray.py).
LOCAL = [
    pytest.param({}, id="sync"),
    pytest.param({"async_mode": True, "executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread"}, id="thread"),
    pytest.param({"executor": "process", "workers": 2}, id="process"),
]
GAMES = ["game:GuessTheNumber-v0", "game:Sudoku-v0-easy", "game:GuessTheNumber-v0-hard"]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    classes = {OBEDIENT: vs.ObedientEnv, WAITING: vs.WaitingEnv, COMPUTING: vs.ComputingEnv}
    for name, cls in classes.items():
        gem.register(name, cls)
    yield
    for name in classes:
        gem.unregister(name)


def play(envs: Any, steps: int = 40) -> list[Any]:
    record: list[Any] = [envs.reset()]
    for _ in range(steps):
        actions = envs.sample_random_action()
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        record.append((actions, observations, rewards.tolist(), terminations.tolist(), truncations.tolist(), infos))
    return record


def strip(record: Any) -> Any:
    """Without process ids."""
    if isinstance(record, dict):
        return {k: strip(v) for k, v in record.items() if k != "pid"}
    return [strip(x) for x in record] if isinstance(record, (list, tuple)) else record


def test_same_seeds_give_the_same_episodes_in_every_executor() -> None:
    ids = [*GAMES, OBEDIENT]
    records = []
    for keywords in ({}, *(dict(p.values[0]) for p in LOCAL[1:])):  # type: ignore[call-overload]
        with gem.make_vec(ids, seed=11, wrappers=[EpisodeTrackingWrapper], **keywords) as envs:
            records.append(strip(play(envs)))
    assert all(r == records[0] for r in records)
    finished = [i for turn in records[0][1:] for i in turn[5] if "final_obs" in i]
    assert len(finished) > 20


def test_each_environment_has_its_own_seed() -> None:
    with gem.make_vec([OBEDIENT] * 3, seed=5) as envs:
        first = envs.reset()[0]
        assert first == [gem.make(OBEDIENT).reset(seed=5 + i)[0] for i in range(3)]
        assert envs.reset(seed=5)[0] == first
        assert envs.reset(seed=[7, 6, 5])[0] == [gem.make(OBEDIENT).reset(seed=s)[0] for s in (7, 6, 5)]
        assert envs.reset()[0] != first


def test_seed_reaches_constructors_that_take_one() -> None:
    class Seeded(vs.ObedientEnv):
        def __init__(self, seed: int = 0) -> None:
            super().__init__()
            self.given = seed

    gem.register("test:Seeded-v0", Seeded)
    try:
        with gem.make_vec(["test:Seeded-v0"] * 2, seed=30, vec_kwargs=[{}, {"seed": 77}]) as envs:
            assert envs.call("given") == [30, 77]
            assert [i["seed"] for i in envs.reset()[1]] == [30, 77]
    finally:
        gem.unregister("test:Seeded-v0")


@pytest.mark.parametrize("keywords", LOCAL)
def test_same_step_autoreset_keeps_the_last_observation(keywords: dict[str, Any]) -> None:
    with gem.make_vec([OBEDIENT] * 2, length=2, **keywords) as envs:
        envs.reset()
        envs.step(["a", "end"])
        observations, rewards, terminations, _, infos = envs.step(["a", "a"])
        assert observations[0].startswith("start ")
        assert infos[0]["final_obs"].startswith("2:")
        assert infos[0]["final_info"]["turn"] == 2
        assert (rewards[0], bool(terminations[0])) == (2.0, True)
        assert observations[1].startswith("1:")
        assert "final_obs" not in infos[1]


@pytest.mark.parametrize("keywords", LOCAL)
def test_next_step_autoreset_ignores_the_action_after_the_end(keywords: dict[str, Any]) -> None:
    with gem.make_vec([OBEDIENT], length=1, autoreset_mode="next-step", **keywords) as envs:
        envs.reset()
        observations, rewards, terminations, _, infos = envs.step(["a"])
        assert observations[0].startswith("1:")
        assert terminations[0]
        observations, rewards, terminations, truncations, infos = envs.step(["raise"])
        assert observations[0].startswith("start ")
        assert (rewards[0], terminations[0], truncations[0]) == (0.0, False, False)
        assert "error" not in infos[0]


@pytest.mark.parametrize("keywords", LOCAL)
def test_without_autoreset_a_finished_environment_must_be_reset(keywords: dict[str, Any]) -> None:
    with gem.make_vec([OBEDIENT] * 2, length=2, autoreset_mode=AutoresetMode.DISABLED, **keywords) as envs:
        envs.reset()
        envs.step(["end", "a"])
        with pytest.raises(RuntimeError, match="environment 0 is over"):
            envs.step(["a", "a"])
        observations, _ = envs.reset(options={"reset_mask": np.array([True, False])})
        assert len(observations) == 1
        assert [o[:2] for o in envs.step(["a", "a"])[0]] == ["1:", "2:"]


@pytest.mark.parametrize("keywords", LOCAL)
def test_partial_steps_by_index(keywords: dict[str, Any]) -> None:
    with gem.make_vec([OBEDIENT] * 4, **keywords) as envs:
        envs.reset()
        _, rewards, _, _, infos = envs.step({2: "x", 0: "y"})
        assert [i["action"] for i in infos] == ["x", "y"]
        assert rewards.shape == (2,)
        assert [o[:2] for o in envs.step(["a"] * 4)[0]] == ["2:", "1:", "2:", "1:"]
        with pytest.raises(ValueError, match="no environment 9"):
            envs.step({9: "x"})
        with pytest.raises(ValueError, match="one action for each of 4"):
            envs.step(["x"] * 3)


def test_mixed_ids_arguments_and_wrappers() -> None:
    labels = [{"label": "p"}, {"label": "q"}]
    with gem.make_vec([OBEDIENT, COMPUTING], vec_kwargs=labels, wrappers=[EpisodeTrackingWrapper], length=3) as envs:
        assert envs.env_ids == [OBEDIENT, COMPUTING]
        _, infos = envs.reset()
        assert [i["step_counter"] for i in infos] == [0, 0]
        observations, *_ = envs.step(["a", "a"])
        assert [o[0] for o in observations] == ["p", "q"]
        assert envs.call("length") == [3, 3]


def test_wrappers_run_in_the_worker() -> None:
    class Shout(EnvWrapper):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
            observation, info = self.env.reset(seed, options)
            import os

            return observation.upper(), {**info, "wrapper_pid": os.getpid()}

    with gem.make_vec([OBEDIENT] * 2, wrappers=[lambda env: Shout(env)], executor="process", workers=1) as envs:
        observations, infos = envs.reset()
        assert observations[0].startswith("START")
        assert infos[0]["pid"] == infos[0]["wrapper_pid"]
        import os

        assert infos[0]["pid"] != os.getpid()


@pytest.mark.parametrize("keywords", LOCAL)
def test_construction_errors_are_raised_at_once(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="length must be positive, got 0"):
        gem.make_vec([OBEDIENT] * 2, vec_kwargs=[{}, {"length": 0}], **keywords)
    with pytest.raises(ValueError, match="has no argument 'lenght'; did you mean 'length'"):
        gem.make_vec([OBEDIENT], lenght=3, **keywords)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        gem.make_vec(["game:GessTheNumber-v0"])
    with pytest.raises(ValueError, match="executor must be"):
        gem.make_vec([OBEDIENT], executor="threads")
    with pytest.raises(ValueError, match="autoreset_mode must be"):
        gem.make_vec([OBEDIENT], autoreset_mode="sometimes")
    with pytest.raises(ValueError, match="vec_kwargs has 1 entries for 2"):
        gem.make_vec([OBEDIENT] * 2, vec_kwargs=[{}])
    with pytest.raises(ValueError, match="inline executor cannot stop"):
        gem.make_vec([OBEDIENT], executor="inline", step_timeout_s=1.0)
    with pytest.raises(ValueError, match="workers must be"):
        gem.make_vec([OBEDIENT], executor="process", workers=0)
    with gem.make_vec([OBEDIENT] * 2) as envs:
        with pytest.raises(RuntimeError, match="never started"):
            envs.step(["a", "a"])
        with pytest.raises(ValueError, match="3 seeds for 2"):
            envs.reset(seed=[1, 2, 3])
        with pytest.raises(ValueError, match="one action for each of 2"):
            envs.step("ab")


def test_gymnasium_modes_are_understood() -> None:
    from gymnasium.vector import AutoresetMode as Theirs

    for ours, theirs in zip(AutoresetMode, Theirs, strict=True):
        assert (ours.name, ours.value) == (theirs.name, theirs.value)
        assert AutoresetMode.parse(theirs) is AutoresetMode.parse(ours.name) is ours
    assert AutoresetMode.parse("same-step") is AutoresetMode.SAME_STEP


def test_executor_follows_what_environments_declare() -> None:
    assert default_executor(["cheap", "cheap"]) == "inline"
    assert default_executor(["cheap", "waits"]) == "thread"
    assert default_executor(["computes", "waits"]) == "process"
    assert default_executor(["cheap"], limited=True) == "process"
    for name, executor in ((OBEDIENT, "inline"), (WAITING, "thread"), (COMPUTING, "process")):
        with gem.make_vec([name], async_mode=True) as envs:
            assert isinstance(envs, AsyncVectorEnv)
            assert envs.executor_name == executor
    assert isinstance(gem.make_vec([COMPUTING]), SyncVectorEnv)


def test_classes_can_be_used_without_registration() -> None:
    with SyncVectorEnv(["a", "b"], [vs.ObedientEnv, lambda: vs.ObedientEnv(length=1)], "disabled", seed=3) as envs:
        assert envs.reset()[0][1] == vs.ObedientEnv().reset(seed=4)[0]
    options = VectorOptions(executor="process", workers=1)
    with AsyncVectorEnv(["a"], [lambda: vs.ObedientEnv(length=1)], options, seed=3) as envs:
        assert envs.reset()[0] == [vs.ObedientEnv().reset(seed=3)[0]]


# -- free-running -----------------------------------------------------------------------------------------------------

FREE = [
    pytest.param({"executor": "inline"}, id="inline"),
    pytest.param({"executor": "thread"}, id="thread"),
    pytest.param({"executor": "process", "workers": 2}, id="process"),
]


@pytest.mark.parametrize("keywords", FREE)
def test_send_and_recv(keywords: dict[str, Any]) -> None:
    envs = gem.make_vec([OBEDIENT] * 6, async_mode=True, length=3, **keywords)
    assert isinstance(envs, AsyncVectorEnv)
    with envs:
        _, infos = envs.reset(seed=1)
        steps = np.zeros(6, dtype=int)
        *_, infos, env_ids = envs.recv()  # the reset's results once more, so that loops may begin with recv
        while steps.min() < 7:
            envs.send([f"act {i}" for i in env_ids], env_ids)
            observations, rewards, terminations, truncations, infos, env_ids = envs.recv(min_ready=2)
            assert len(observations) == len(rewards) == len(terminations) == len(truncations) == len(env_ids) >= 1
            for i, info in zip(env_ids, infos, strict=True):
                assert info.get("final_info", info)["action"] == f"act {i}"
                steps[i] += 1
        while envs.num_running:
            envs.recv()
        with pytest.raises(RuntimeError, match="nothing is under way"):
            envs.recv()
        envs.send_reset(seed=1, env_ids=[4, 1])
        observations, rewards, _, _, _, env_ids = envs.recv(min_ready=2)
        assert dict(zip(env_ids, observations, strict=True)) == {
            i: vs.ObedientEnv().reset(seed=1 + i)[0] for i in (4, 1)
        }
        assert rewards.tolist() == [0.0, 0.0]


def test_an_environment_takes_one_action_at_a_time() -> None:
    with gem.make_vec([OBEDIENT] * 2, executor="thread") as envs:
        assert isinstance(envs, AsyncVectorEnv)
        envs.reset()
        envs.send(["sleep 0.2"], [0])
        with pytest.raises(RuntimeError, match="environment 0 still has a step"):
            envs.send(["a"], [0])
        assert envs.step({1: "a"})[4][0]["action"] == "a"  # lockstep beside it
        assert envs.recv()[5] == [0]
        envs.send(["sleep 0.2"], [0])
        assert envs.recv(timeout=0.01)[5] == []
        assert envs.recv(timeout=5.0)[5] == [0]


def rate(envs: Any, seconds: float, slow: dict[int, str], fast: str) -> float:
    """Steps a second of the environments that are not slow."""
    envs.reset()
    envs.send([slow.get(i, fast) for i in range(envs.num_envs)])
    count, begin = 0, time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        *_, env_ids = envs.recv(min_ready=1)
        count += sum(i not in slow for i in env_ids)
        envs.send([slow.get(i, fast) for i in env_ids], env_ids)
    return count / (now - begin)


@pytest.mark.parametrize(
    "keywords", [{"executor": "thread"}, {"executor": "process", "workers": 2}], ids=["thread", "process"]
)
def test_a_slow_step_holds_up_nobody(keywords: dict[str, Any]) -> None:
    with gem.make_vec([WAITING] * 16, length=10**6, **keywords) as envs:
        without = rate(envs, 0.6, {}, "sleep 0.01")
    with gem.make_vec([WAITING] * 16, length=10**6, **keywords) as envs:
        with_slow = rate(envs, 0.6, {3: "sleep 0.5"}, "sleep 0.01")
    # Loose, since the machine may be busy; a pool in lockstep (or a worker held up) falls to 0.1 or less.
    assert with_slow > 0.6 * without * 15 / 16


def test_companions_in_a_worker_overtake_a_slow_step() -> None:
    with gem.make_vec([COMPUTING] * 8, executor="process", workers=1) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        envs.reset()
        begin = time.perf_counter()
        envs.send(["sleep 1.0", *["a"] * 7])
        seen: list[int] = []
        while len(seen) < 7:
            seen += envs.recv()[5]
        assert time.perf_counter() - begin < 0.8
        assert 0 not in seen
        assert envs.recv()[5] == [0]


def test_waiting_steps_run_side_by_side() -> None:
    for keywords in ({"executor": "thread"}, {"executor": "process", "workers": 2}):
        with gem.make_vec([WAITING] * 32, **keywords) as envs:
            envs.reset()
            begin = time.perf_counter()
            envs.step(["sleep 0.2"] * 32)
            assert time.perf_counter() - begin < 1.0


def test_large_messages_both_ways() -> None:
    class Echo(Env):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
            return "", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return action * 2, 0.0, False, False, {}

    with AsyncVectorEnv(["e"] * 4, [Echo] * 4, VectorOptions(executor="process", workers=1)) as envs:
        envs.reset()
        actions = [str(i) * 1_000_000 for i in range(4)]
        envs.send(actions)
        got: dict[int, int] = {}
        while len(got) < 4:
            observations, *_, env_ids = envs.recv()
            got.update({i: len(o) for i, o in zip(env_ids, observations, strict=True)})
        assert got == dict.fromkeys(range(4), 2_000_000)

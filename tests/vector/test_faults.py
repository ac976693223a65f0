"""What faults cost: one episode, reported with its reason. And nothing is left running."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import vector_support as vs

import gem_core as gem
from gem_core.vector import AsyncVectorEnv, SyncVectorEnv, VectorOptions
from gem_core.vector.process import ProcessExecutor

OBEDIENT = "test:Obedient-v0"
EVERYWHERE = [
    pytest.param({}, id="sync"),
    pytest.param({"executor": "thread"}, id="thread"),
    pytest.param({"executor": "process", "workers": 1}, id="process"),
]
MODES = ["same-step", "next-step", "disabled"]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gem.register(OBEDIENT, vs.ObedientEnv)
    yield
    gem.unregister(OBEDIENT)


def kinds(step: Any) -> list[str | None]:
    """The kind of each environment's fault; checks that what failed looks as documented."""
    out = []
    for reward, terminated, truncated, info in zip(*step[1:], strict=True):
        fault = info.get("error")
        out.append(fault and fault["kind"])
        if fault:
            assert (reward, bool(terminated), bool(truncated)) == (0.0, False, True)
            assert fault["message"]
            assert fault["where"] in ("reset", "step")
    return out


def restart(envs: Any, mode: str, failed: list[int]) -> None:
    """Brings failed environments back, as each mode has it."""
    if mode == "disabled":
        envs.reset(env_ids=failed)
    elif mode == "next-step":
        observations, *_ = envs.step(dict.fromkeys(failed, "ignored"))
        assert all(o.startswith("start ") for o in observations)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keywords", EVERYWHERE)
def test_exceptions_and_exits_fail_their_own_episode(keywords: dict[str, Any], mode: str) -> None:
    with gem.make_vec([OBEDIENT] * 4, autoreset_mode=mode, seed=1, **keywords) as envs:
        envs.reset()
        step = envs.step(["raise", "exit", "garbage", "a"])
        assert kinds(step) == ["exception", "exit", "exception", None]
        error = step[4][0]["error"]
        assert error["message"] == "ValueError: cannot play 'raise'"
        assert "vector_support.py" in error["traceback"]
        if mode == "same-step":
            assert step[0][0].startswith("start ")
            assert step[4][0]["final_obs"] == ""
            assert step[4][0]["final_info"]["error"] == error
        restart(envs, mode, [0, 1, 2])
        assert [o.split(":")[0] for o in envs.step(["a"] * 4)[0]] == ["1", "1", "1", "2"]


@pytest.mark.parametrize("keywords", EVERYWHERE)
def test_episodes_after_a_fault_are_the_same_everywhere(keywords: dict[str, Any]) -> None:
    def go(**chosen: Any) -> list[Any]:
        with gem.make_vec([OBEDIENT] * 3, seed=8, **chosen) as envs:
            envs.reset()
            return [envs.step(["a", action, "b"])[0] for action in ("a", "raise", "a", "exit", "a")]

    assert go(**keywords) == go()


@pytest.mark.parametrize("keywords", EVERYWHERE)
def test_failed_resets(keywords: dict[str, Any]) -> None:
    with gem.make_vec([OBEDIENT] * 2, length=1, vec_kwargs=[{"fail_resets": True}, {}], **keywords) as envs:
        observations, infos = envs.reset()
        assert infos[0]["error"]["where"] == "reset"
        assert observations[0] == ""
        step = envs.step(["a", "a"])  # tries again
        assert kinds(step) == ["exception", None]
    with gem.make_vec([OBEDIENT], length=1, autoreset_mode="disabled", **keywords) as envs:
        assert envs.reset(options={"fail": True})[1][0]["error"]["message"] == "OSError: no reset today"
        with pytest.raises(RuntimeError, match="reset it first"):
            envs.step(["a"])
        assert "error" not in envs.reset()[1][0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("keywords", "hang"),
    [({"executor": "thread"}, "sleep 0.7"), ({"executor": "process", "workers": 1}, "sleep 60")],
    ids=["thread", "process"],
)
def test_a_step_past_its_limit_fails_alone(keywords: dict[str, Any], hang: str, mode: str) -> None:
    with gem.make_vec([OBEDIENT] * 3, step_timeout_s=0.2, autoreset_mode=mode, **keywords) as envs:
        envs.reset()
        begin = time.perf_counter()
        step = envs.step([hang, "a", "a"])
        assert time.perf_counter() - begin < 3.0
        assert kinds(step) == ["timeout", None, None]
        restart(envs, mode, [0])
        for turn in ("2", "3"):  # companions in the worker go on in their episodes
            assert [o.split(":")[0] for o in envs.step(["a"] * 3)[0]][1:] == [turn, turn]


def test_an_endless_loop_is_stopped_and_its_worker_replaced() -> None:
    with gem.make_vec([OBEDIENT] * 2, length=4, executor="process", workers=1, step_timeout_s=0.2) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        pool = envs._executor
        assert isinstance(pool, ProcessExecutor)
        before = pool.pids
        envs.reset()
        assert kinds(envs.step(["spin", "a"])) == ["timeout", None]
        for _ in range(6):  # long enough for the companion's episode to end, whereupon it moves
            assert kinds(envs.step(["a", "a"])) == [None, None]
        assert len(pool.pids) == 1
        assert pool.pids != before
        assert not any(psutil.pid_exists(p) for p in before)


def test_a_worker_that_stops_answering_is_killed() -> None:
    with gem.make_vec([OBEDIENT] * 2, executor="process", workers=2, step_timeout_s=0.2, reset_timeout_s=0.2) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        envs.reset()
        pool = envs._executor
        assert isinstance(pool, ProcessExecutor)
        pool._silent_s = 0.5
        psutil.Process(pool.pids[0]).suspend()
        assert kinds(envs.step(["a", "a"])) == ["killed", None]
        assert kinds(envs.step(["a", "a"])) == [None, None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("action", ["kill", "os_exit"])
def test_a_dead_worker_is_replaced(action: str, mode: str) -> None:
    with gem.make_vec([OBEDIENT] * 3, executor="process", workers=3, autoreset_mode=mode) as envs:
        envs.reset()
        step = envs.step(["a", action, "a"])
        assert kinds(step) == [None, "killed" if action == "kill" else "exit", None]
        message = step[4][1]["error"]["message"]
        assert ("SIGKILL" if action == "kill" else "status 7") in message
        restart(envs, mode, [1])
        assert [o.split(":")[0] for o in envs.step(["a"] * 3)[0]] == ["2", "1", "2"]


@pytest.mark.parametrize("mode", MODES)
def test_an_idle_companion_of_a_dead_worker_learns_of_it_at_its_next_step(mode: str) -> None:
    with gem.make_vec([OBEDIENT] * 2, executor="process", workers=1, autoreset_mode=mode) as envs:
        envs.reset()
        assert kinds(envs.step({0: "kill"})) == ["killed"]
        assert kinds(envs.step({1: "a"})) == ["lost"]
        restart(envs, mode, [0, 1])
        assert [o.split(":")[0] for o in envs.step(["a"] * 2)[0]] == ["1", "1"]


def test_death_from_outside_during_steps() -> None:
    with gem.make_vec([OBEDIENT] * 4, executor="process", workers=2, length=10**6) as envs:
        assert isinstance(envs, AsyncVectorEnv)
        pool = envs._executor
        assert isinstance(pool, ProcessExecutor)
        envs.reset()
        for pid in pool.pids:
            threading.Timer(0.1, psutil.Process(pid).kill).start()
        seen: list[str | None] = []
        envs.send(["sleep 0.3"] * 4)
        while len(seen) < 4:
            seen += kinds(envs.recv()[:5])
        assert seen == ["killed"] * 4
        assert kinds(envs.step(["a"] * 4)) == [None] * 4


def test_printing_disturbs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with gem.make_vec([OBEDIENT] * 2, executor="process", workers=1) as envs:
        envs.reset()
        assert kinds(envs.step(["print", "a"])) == [None, None]
    captured = capfd.readouterr()
    assert "out of the environment" in captured.err
    assert captured.out == ""


def test_infos_that_cannot_be_pickled_arrive_as_text() -> None:
    with gem.make_vec([OBEDIENT] * 2, executor="process", workers=1) as envs:
        envs.reset()
        _, _, _, _, infos = envs.step(["unpicklable", "a"])
        assert "lambda" in infos[0]["odd"][0]
        assert infos[0]["turn"] == infos[1]["turn"] == 1


# -- nothing stays ----------------------------------------------------------------------------------------------------


def descendants() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def wait_until(condition: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_every_start_method_works_and_leaves_nothing(method: str) -> None:
    before, threads = descendants(), threading.active_count()
    envs = gem.make_vec([OBEDIENT] * 2, executor="process", workers=2, start_method=method, step_timeout_s=5.0)
    envs.reset()
    assert kinds(envs.step(["kill", "a"])) == ["killed", None]
    assert kinds(envs.step(["a", "a"])) == [None, None]
    assert descendants() > before
    envs.close()
    envs.close()
    assert descendants() <= before
    assert threading.active_count() <= threads
    with pytest.raises(RuntimeError, match="is closed"):
        envs.reset()


def test_close_ends_steps_under_way() -> None:
    before = descendants()
    envs = gem.make_vec([OBEDIENT] * 3, executor="process", workers=2)
    assert isinstance(envs, AsyncVectorEnv)
    envs.reset()
    envs.send(["sleep 60", "spin", "a"])
    begin = time.perf_counter()
    envs.close()
    assert time.perf_counter() - begin < 6.0
    assert descendants() <= before


def test_close_ends_threads_and_closes_environments() -> None:
    threads = threading.active_count()
    built: list[vs.ObedientEnv] = []

    def build() -> vs.ObedientEnv:
        built.append(vs.ObedientEnv())
        return built[-1]

    envs = AsyncVectorEnv(["a"] * 3, [build] * 3, VectorOptions(executor="thread"))
    envs.reset()
    envs.send(["sleep 0.3", "spin", "a"])  # an endless loop in Python code is interrupted
    envs.close()
    assert wait_until(lambda: threading.active_count() <= threads)
    assert all(e.closed for e in built)


def test_collected_vectors_take_their_workers_along() -> None:
    before, threads = descendants(), threading.active_count()
    for executor in ("thread", "process"):
        envs = gem.make_vec([OBEDIENT] * 2, executor=executor, step_timeout_s=5.0)
        envs.reset()
        del envs
        gc.collect()
    assert wait_until(lambda: descendants() <= before)
    assert wait_until(lambda: threading.active_count() <= threads)


SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
import psutil
import gem_core as gem
import vector_support as vs
gem.register("test:O-v0", vs.ObedientEnv)
envs = gem.make_vec(["test:O-v0"] * 2, executor="process", workers=2, async_mode=True)
envs.reset()
print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)
envs.send(["spin", "sleep 60"])
{end}
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "1 / 0", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_workers_end_with_their_owner_however_it_ends(end: str) -> None:
    """Also: a script needs no ``if __name__ == "__main__"``."""
    script = SCRIPT.format(tests=os.path.dirname(vs.__file__), end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    pids = [int(p) for p in done.stdout.split()]
    assert len(pids) == 3  # the template and two workers
    assert wait_until(lambda: not any(psutil.pid_exists(p) and alive(p) for p in pids))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_works_inside_a_forked_and_a_daemonic_process() -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    outer = gem.make_vec([OBEDIENT] * 2, executor="process", workers=1)
    outer.reset()

    def child() -> None:
        try:
            with gem.make_vec([OBEDIENT] * 2, executor="process", workers=1) as envs:
                envs.reset()
                queue.put(kinds(envs.step(["kill", "a"])) == ["killed", "killed"])
            try:
                outer.step(["a", "a"])
            except RuntimeError as e:
                queue.put("after fork" in str(e))
        finally:
            queue.put(None)

    process = context.Process(target=child, daemon=True)
    process.start()
    answers = [queue.get(), queue.get()]
    process.join(20)
    assert answers == [True, True]
    assert kinds(outer.step(["a", "a"])) == [None, None]  # the child has not closed its parent's workers
    outer.close()


def test_a_sync_vector_replaces_an_environment_that_raised() -> None:
    with SyncVectorEnv(["a"], [vs.ObedientEnv]) as envs:
        envs.reset()
        broken = envs.envs[0]
        envs.step(["raise"])
        assert envs.envs[0] is not broken
        assert broken.closed  # type: ignore[attr-defined]

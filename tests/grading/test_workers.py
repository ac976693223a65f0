"""The worker pool: hard limits in any thread or process, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gem_core.grading.math import grade_math
from gem_core.grading.workers import JobFailed, WorkerPool

HANG = "(lambda: [None for _ in iter(int, 1)])()"
SLACK_S = 2.0  # for a machine that is busy with other tests


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with_eval = WorkerPool("builtins:eval", max_workers=2)
    yield with_eval
    with_eval.close()


def timed_out(pool: WorkerPool, timeout: float = 0.3) -> float:
    start = time.monotonic()
    with pytest.raises(JobFailed) as failure:
        pool.run(HANG, timeout)
    assert failure.value.reason == "time_limit"
    return time.monotonic() - start


def test_a_result_comes_back(pool: WorkerPool) -> None:
    assert pool.run("[1, 'é', None]", 5) == [1, "é", None]


def test_the_limit_holds_in_python_and_in_c_code(pool: WorkerPool) -> None:
    assert 0.25 < timed_out(pool) < 0.3 + SLACK_S
    start = time.monotonic()
    with pytest.raises(JobFailed, match="time_limit"):
        pool.run("9**9**9**2", 0.3)  # one bytecode: no signal handler of Python's would ever run
    assert time.monotonic() - start < 0.3 + SLACK_S
    assert pool.run("1+1", 5) == 2


def test_the_limit_holds_in_threads_at_once(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(4) as executor:
        taken = list(executor.map(lambda _: timed_out(pool), range(4)))
    assert max(taken) < 2 * 0.3 + 2 * SLACK_S  # two workers for four jobs
    assert pool.run("2+2", 5) == 4


def test_the_limit_holds_in_a_forked_process(pool: WorkerPool) -> None:
    pool.run("0", 5)
    pid = os.fork()
    if pid == 0:
        try:
            code = 0 if pool.run("3", 10) == 3 and timed_out(pool) < 0.3 + 2 * SLACK_S else 1
            pool.close()
        except BaseException:
            code = 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert pool.run("4", 5) == 4  # the parent's workers are still its own


def test_memory_is_limited(pool: WorkerPool) -> None:
    with pytest.raises(JobFailed) as failure:
        pool.run("len(bytearray(4 << 30))", 10)
    assert failure.value.reason == "memory_limit"
    with pytest.raises(JobFailed, match=r"memory_limit|time_limit|crashed"):
        pool.run("[list(range(10**6)) for _ in range(10**5)]", 10)
    assert pool.run("5", 5) == 5


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("__import__('os')._exit(3)", "crashed"),
        ("__import__('os').abort()", "crashed"),
        ("1/0", "error"),
        ("exit()", "error"),
        ("object()", "error"),
    ],
)
def test_a_job_cannot_take_the_pool_down(pool: WorkerPool, job: str, reason: str) -> None:
    with pytest.raises(JobFailed) as failure:
        pool.run(job, 5)
    assert failure.value.reason == reason
    assert pool.run("6", 5) == 6


def test_an_outer_alarm_is_left_alone(pool: WorkerPool) -> None:
    rang = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: rang.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.6)
        timed_out(pool, 0.2)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0 or rang.is_set()
        assert rang.wait(2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_nothing_is_left_behind_and_nothing_slows_down() -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    pool = WorkerPool("builtins:eval", max_workers=2)
    for _ in range(5):
        timed_out(pool, 0.05)

    def rate() -> float:
        start = time.perf_counter()
        for i in range(300):
            assert pool.run(str(i), 5) == i
        return time.perf_counter() - start

    first = rate()
    assert len(psutil.Process().children(recursive=True)) - len(before) <= 3  # the template and two workers
    assert rate() < 3 * first + 0.5
    pool.close()
    deadline = time.monotonic() + 5
    while {p.pid for p in psutil.Process().children(recursive=True)} - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {p.pid for p in psutil.Process().children(recursive=True)} - before == set()
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files


def test_workers_end_by_themselves_when_their_process_is_killed(tmp_path: Path) -> None:
    marker = f"gem-test-{os.getpid()}-{time.monotonic_ns()}"  # in the command line of the template and its workers
    program = f"""
import sys
sys.path.insert(0, {marker!r})
from gem_core.grading.workers import WorkerPool
pool = WorkerPool("builtins:eval", max_workers=1)
pool.run("1", 10)
print("ready", flush=True)
pool.run({HANG!r}, 2.0)
"""

    def alive() -> list[int]:
        return [p.pid for p in psutil.process_iter(["cmdline"]) if any(marker in c for c in p.info["cmdline"] or [])]

    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    assert len(alive()) >= 2
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 2.0 + SLACK_S
    while alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive() == []


def test_a_handler_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(RuntimeError, match="no_such_module"):
        WorkerPool("no_such_module:f").run(1, 1)


def test_a_bomb_in_a_box_costs_its_limit_in_a_thread() -> None:
    grade_math("\\boxed{x+1}", "y")  # starts the workers
    results = []
    thread = threading.Thread(target=lambda: results.append(grade_math("\\boxed{9^{9^{9^{9}}}}", "5", timeout=0.5)))
    start = time.monotonic()
    thread.start()
    thread.join()
    assert time.monotonic() - start < 0.5 + SLACK_S
    assert results[0].reason == "time_limit"

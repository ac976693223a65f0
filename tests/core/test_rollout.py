"""The rollout loop: nothing lost, nothing doubled, nobody waits for the slowest."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vector_support as vs
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core as gem
from gem_core.chat import ChatRenderer
from gem_core.episode import Episode, StopReason
from gem_core.policies import ScriptedPolicy, TextPolicy
from gem_core.rollout import Rollout, RolloutOptions, Task, arollout, iter_rollout, make_tasks, rollout
from gem_core.rollout_order import Arranger
from gem_core.session import Generation, Limits, Prompt

GUESS = "game:GuessTheNumber-v0"
OBEDIENT = "test:Rollout-v0"


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gem.register(OBEDIENT, vs.ObedientEnv)
    yield
    gem.unregister(OBEDIENT)


def say(text: str) -> TextPolicy:
    return TextPolicy(lambda prompt: text)


def by_episode(orders: dict[str, list[str]], default: str = "a") -> TextPolicy:
    """Actions by episode id and turn."""

    def answer(prompt: Prompt) -> str:
        lines = orders.get(prompt.episode_id, [])
        return lines[prompt.turn] if prompt.turn < len(lines) else default

    return TextPolicy(answer)


class Awaited:
    """The same policy, to be awaited; remembers how many calls overlap."""

    def __init__(self, policy: Any, seconds: float = 0.0) -> None:
        self.policy, self.seconds = policy, seconds
        self.running = self.most = 0
        self.loops: set[Any] = set()

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        self.loops.add(asyncio.get_running_loop())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        return self.policy.generate(prompts)


def test_same_episodes_in_every_executor_and_by_every_way(tokenizer: Any) -> None:
    tasks = make_tasks([GUESS, OBEDIENT], groups=6, group_size=3, seed=40)
    renderer = ChatRenderer(tokenizer)

    def answer(prompt: Prompt) -> str:
        return f"\\boxed{{{hash_of(prompt) % 20 + 1}}}"

    policy = TextPolicy(answer, tokenizer)
    options: dict[str, Any] = {"concurrency": 7, "limits": Limits(max_turns=4)}
    reference = rollout(tasks, policy, renderer, **options)
    assert [e.episode_id for e in reference] == [t.episode_id for t in tasks]
    assert [e.seed for e in reference] == [t.seed for t in tasks]
    assert all(e.to_sequences() for e in reference)
    for executor in ("inline", "thread", "process"):
        for how in (policy, Awaited(policy)):
            episodes = rollout(tasks, how, renderer, executor=executor, **options)
            assert [plain(e) for e in episodes] == [plain(e) for e in reference]
    # Beside one another or one by one: the same.
    assert [plain(e) for e in rollout(tasks, policy, renderer, concurrency=1, limits=Limits(max_turns=4))] == [
        plain(e) for e in reference
    ]


def hash_of(prompt: Prompt) -> int:
    return sum(map(ord, prompt.episode_id)) + 7 * prompt.turn


def plain(episode: Episode) -> str:
    return episode.to_json()


def test_groups_start_alike_and_come_out_together() -> None:
    tasks = make_tasks(OBEDIENT, groups=8, group_size=4)
    orders = {t.episode_id: ["a"] * (i * 7 % 5) + ["end"] for i, t in enumerate(tasks)}
    episodes = list(iter_rollout(tasks, by_episode(orders), order="group", concurrency=6))
    stretches = [list(g) for _, g in itertools.groupby(episodes, key=lambda e: e.group_id)]
    assert [len(s) for s in stretches] == [4] * 8
    for stretch in stretches:
        assert len({e.turns[0].observation for e in stretch}) == 1


def test_finished_episodes_do_not_wait_for_slow_ones() -> None:
    tasks = make_tasks(OBEDIENT, groups=20)
    slow = tasks[0].episode_id
    policy = by_episode({slow: ["sleep 1.0"]}, default="end")
    begin = time.perf_counter()
    order = []
    for episode in iter_rollout(tasks, policy, executor="thread", concurrency=4):
        order.append(episode.episode_id)
        if len(order) == 19:
            assert time.perf_counter() - begin < 0.9
    assert order[-1] == slow
    assert len(order) == 20


def test_ready_prompts_are_generated_for_together() -> None:
    sizes = []

    class Counting:
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            sizes.append(len(prompts))
            return [Generation(text="a") for _ in prompts]

    rollout(make_tasks(OBEDIENT, groups=32), Counting(), concurrency=16)
    assert sizes == [16] * 10
    sizes.clear()
    rollout(make_tasks(OBEDIENT, groups=8), Counting(), concurrency=8, max_batch=3)
    assert max(sizes) == 3
    assert sum(sizes) == 40


def test_awaitable_policies_have_many_calls_under_way() -> None:
    policy = Awaited(say("end"), seconds=0.1)
    begin = time.perf_counter()
    rollout(make_tasks(OBEDIENT, groups=16), policy, concurrency=16, max_batch=1)
    assert time.perf_counter() - begin < 1.0
    assert policy.most == 16


def test_async_iteration_in_the_callers_loop() -> None:
    policy = Awaited(say("end"), seconds=0.01)

    async def main() -> list[str]:
        out = [e.episode_id async for e in arollout(make_tasks(OBEDIENT, groups=10), policy, concurrency=4)]
        assert policy.loops == {asyncio.get_running_loop()}
        return out

    assert sorted(asyncio.run(main())) == sorted(t.episode_id for t in make_tasks(OBEDIENT, groups=10))


def test_async_cancellation_stops_everything() -> None:
    before = threading.active_count()
    policy = Awaited(say("a"), seconds=0.05)

    async def endless() -> None:
        tasks = (Task(OBEDIENT, seed=i) for i in itertools.count())
        async for _ in arollout(tasks, policy, concurrency=4, executor="process", workers=1):
            pass

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(endless(), 1.0)
        assert policy.running == 0

    asyncio.run(main())
    assert threading.active_count() <= before


def test_leaving_the_loop_early_stops_everything() -> None:
    before = threading.active_count()
    tasks = (Task(OBEDIENT, seed=i) for i in itertools.count())
    for number, _ in enumerate(iter_rollout(tasks, say("end"), concurrency=4, executor="thread")):
        if number == 10:
            break
    deadline = time.monotonic() + 3
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("order", ["done", "group", "task"])
def test_back_pressure(order: Any) -> None:
    started = []

    def tasks() -> Iterator[Task]:
        for i in itertools.count():
            started.append(i)
            yield Task(OBEDIENT, seed=i, group_id=str(i // 2))

    options = RolloutOptions(concurrency=4, max_buffered=5, order=order)
    with Rollout(tasks(), say("end"), options=options) as run:
        next(run)
        time.sleep(0.3)
        assert len(started) <= 1 + 5 + 2 * 4  # taken, buffered, in flight (and looked at ahead)
        for _ in range(50):
            next(run)
        time.sleep(0.2)
        assert 51 <= len(started) <= 51 + 5 + 2 * 4


def test_faults_come_out_as_failed_episodes() -> None:
    tasks = make_tasks(OBEDIENT, groups=6)
    names = [t.episode_id for t in tasks]
    orders = {names[0]: ["a", "raise"], names[1]: ["kill"], names[2]: ["a", "sleep 30"], names[3]: ["os_exit"]}
    episodes = rollout(
        [*tasks, Task(OBEDIENT, seed=1, options={"fail": True})],
        by_episode(orders, default="end"),
        executor="process",
        workers=7,
        step_timeout_s=0.3,
    )
    assert [e.stop_reason for e in episodes] == [
        *[StopReason.ENV_ERROR] * 4,
        *[StopReason.TERMINATED] * 2,
        StopReason.ENV_ERROR,
    ]
    assert [len(e.turns) for e in episodes] == [2, 1, 2, 1, 1, 1, 0]
    errors = [e.error or "" for e in episodes]
    for error, part in zip(errors, ["cannot play 'raise'", "SIGKILL", "longer than 0.3 s", "status 7"], strict=False):
        assert part in error
    assert errors[6] == "reset: OSError: no reset today"


def test_policy_errors() -> None:
    class Broken:
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            if any(p.turn == 1 and p.episode_id == "3" for p in prompts):
                raise MemoryError("no room")
            return [Generation(text="a") for _ in prompts]

    tasks = [Task(OBEDIENT, seed=i, kwargs={"length": 2}) for i in range(6)]
    with pytest.raises(MemoryError, match="no room"):
        rollout(tasks, Broken(), max_batch=1)
    episodes = rollout(tasks, Broken(), max_batch=1, on_policy_error="record")
    assert [e.stop_reason for e in episodes] == [
        StopReason.POLICY_ERROR if i == 3 else StopReason.TERMINATED for i in range(6)
    ]
    assert episodes[3].error == "generate: MemoryError: no room"

    class Short:
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            return []

    with pytest.raises(ValueError, match="0 answers for 6 prompts"):
        rollout(tasks, Short())
    with pytest.raises(ValueError, match="has a method generate"):
        rollout(tasks, object())  # type: ignore[arg-type]


def test_aborted_generations_are_resumed(tokenizer: Any) -> None:
    class Interrupted:
        def __init__(self) -> None:
            self.aborted: set[str] = set()

        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            out = []
            for prompt in prompts:
                ids = tokenizer.encode("end")
                if prompt.episode_id not in self.aborted:
                    self.aborted.add(prompt.episode_id)
                    out.append(Generation(ids[:1], [-0.5], "abort"))
                else:
                    out.append(Generation([*ids[1:], tokenizer.eos_token_id], [-0.5] * len(ids)))
            return out

    episodes = rollout(make_tasks(OBEDIENT, groups=3), Interrupted(), ChatRenderer(tokenizer))
    assert [e.turns[0].action for e in episodes] == ["end"] * 3


def test_random_policy_draws_in_the_environment(tokenizer: Any) -> None:
    for executor in ("inline", "process"):
        episodes = rollout(make_tasks(GUESS, groups=5), "random", ChatRenderer(tokenizer), executor=executor)
        assert all(e.turns and e.turns[0].action.startswith("\\boxed{") for e in episodes)
        assert all(e.turns[0].info["action_is_valid"] for e in episodes)  # later ones may repeat a guess
        assert all(t.response_ids for e in episodes for t in e.turns)


def test_environments_are_used_again_for_tasks_of_their_kind() -> None:
    built: list[int] = []

    class Counted(vs.ObedientEnv):
        def __init__(self) -> None:
            super().__init__()
            built.append(1)

    tasks = [Task(Counted if i % 2 else OBEDIENT, seed=i) for i in range(40)]
    episodes = rollout(tasks, say("end"), concurrency=4, executor="inline")
    assert len(episodes) == 40
    assert len(built) <= 4


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'concurrency'"):
        rollout([], say("a"), concurency=3)
    with pytest.raises(ValueError, match="order must be"):
        rollout([], say("a"), order="random")
    with pytest.raises(ValueError, match="two tasks have the episode id 'x'"):
        rollout([Task(OBEDIENT, episode_id="x")] * 2, say("a"))
    with pytest.raises(ValueError, match="bind the arguments"):
        rollout([Task(vs.ObedientEnv, kwargs={"length": 1})], say("a"))
    with pytest.raises(ValueError, match="group_size must be"):
        make_tasks(OBEDIENT, groups=1, group_size=0)
    assert rollout([], say("a")) == []


def test_stats_and_progress(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            time.sleep(0.05)
            return [Generation(text="sleep 0.05") for _ in prompts]

    options = RolloutOptions(concurrency=4, executor="thread")
    with Rollout(make_tasks(OBEDIENT, groups=4), Slow(), options=options) as run:
        assert len(list(run)) == 4
        stats = run.stats
    assert (stats.episodes, stats.turns, stats.failed, stats.resumed) == (4, 20, 0, 0)
    # Five turns of 0.05 s each; how much of one hides behind the other depends on how busy the machine is.
    assert 0.0 < stats.env_wait_s < 5.0
    assert 0.0 < stats.generation_wait_s < 5.0
    assert stats.episodes_per_s > 0

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not installed
    with caplog.at_level(logging.INFO, logger="gem_core.rollout_progress"):
        rollout(make_tasks(OBEDIENT, groups=3), say("end"), progress=True)
    assert "3 of 3 episodes" in caplog.text
    assert "env wait" in caplog.text


# -- the log ----------------------------------------------------------------------------------------------------------


def test_a_rollout_goes_on_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "log.jsonl"
    tasks = make_tasks(GUESS, groups=20)
    policy = ScriptedPolicy(GUESS)
    reference = rollout(tasks, policy)
    taken = list(itertools.islice(iter_rollout(tasks, policy, log=log, concurrency=3), 8))
    seen = {json.loads(line)["episode_id"] for line in log.read_text().splitlines()}
    assert {e.episode_id for e in taken} <= seen
    played: list[str] = []

    class Noting:
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            played.extend(p.episode_id for p in prompts)
            return policy.generate(prompts)

    with Rollout(tasks, Noting(), options=RolloutOptions(log=log, order="task")) as run:
        assert [plain(e) for e in run] == [plain(e) for e in reference]
        assert run.stats.resumed == len(seen) >= 8
    assert not seen & set(played)
    lines = log.read_text().splitlines()
    assert sorted(Episode.from_json(x).episode_id for x in lines) == sorted(t.episode_id for t in tasks)


def test_a_line_cut_short_is_played_again(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    tasks = make_tasks(GUESS, groups=5)
    reference = rollout(tasks, ScriptedPolicy(GUESS), log=log)
    whole = log.read_bytes()
    for cut in (1, 20, len(whole) // 2):
        log.write_bytes(whole[:-cut])
        assert [plain(e) for e in rollout(tasks, ScriptedPolicy(GUESS), log=log)] == [plain(e) for e in reference]
        assert len(log.read_bytes()) == len(whole)


def test_a_log_of_another_run_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rollout([Task(GUESS, seed=1, episode_id="x")], ScriptedPolicy(GUESS), log=log)
    with pytest.raises(ValueError, match="use another log for another run"):
        rollout([Task(GUESS, seed=2, episode_id="x")], ScriptedPolicy(GUESS), log=log)
    log.write_text('{"no": "episode"}\n')
    with pytest.raises(ValueError, match="line 1: no episode"):
        rollout([Task(GUESS, seed=2)], ScriptedPolicy(GUESS), log=log)


CRASH = """
import os, sys
sys.path.insert(0, {tests!r})
import gem_core as gem, vector_support as vs
from gem_core.rollout import Task, iter_rollout
from gem_core.policies import TextPolicy
gem.register("test:Rollout-v0", vs.ObedientEnv)
tasks = [Task("test:Rollout-v0", seed=i, episode_id=str(i)) for i in range(200)]
for n, episode in enumerate(iter_rollout(tasks, TextPolicy(lambda p: "a"), log={log!r}, concurrency=8)):
    print(episode.episode_id, flush=True)
    if n == {after}:
        os.kill(os.getpid(), 9)
"""


def test_no_episode_is_lost_or_doubled_by_a_crash(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for after in (30, 60):
        script = CRASH.format(tests=os.path.dirname(vs.__file__), log=str(log), after=after)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == -9, done.stderr
        seen = done.stdout.split()
        logged = [json.loads(x)["episode_id"] for x in log.read_text().splitlines() if x.endswith("}")]
        assert set(seen) <= set(logged)
        assert len(set(logged)) == len(logged)
    tasks = [Task(OBEDIENT, seed=i, episode_id=str(i)) for i in range(200)]
    episodes = rollout(tasks, say("a"), log=log)
    assert [e.episode_id for e in episodes] == [str(i) for i in range(200)]
    logged = [json.loads(x)["episode_id"] for x in log.read_text().splitlines()]
    assert sorted(logged) == sorted(map(str, range(200)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), max_size=6),
    st.randoms(use_true_random=False),
    st.sampled_from(["done", "group", "task"]),
)
def test_arranging_loses_and_doubles_nothing(sizes: list[int], rng: Any, order: Any) -> None:
    numbers = [(i, g) for i, g in enumerate(g for g, size in enumerate(sizes) for _ in range(size))]
    out: list[int] = []
    arranger = Arranger(order, lambda e: out.append(e.seed or 0))
    waiting: list[int] = []
    for number, group in numbers:
        arranger.expect(number, str(group))
        waiting.append(number)
        while waiting and rng.random() < 0.5:
            chosen = waiting.pop(rng.randrange(len(waiting)))
            arranger.done(chosen, Episode("e", seed=chosen))
    arranger.close()
    while waiting:
        chosen = waiting.pop(rng.randrange(len(waiting)))
        arranger.done(chosen, Episode("e", seed=chosen))
    arranger.flush()
    assert sorted(out) == [n for n, _ in numbers]
    if order == "task":
        assert out == sorted(out)
    if order == "group":
        groups = [dict(numbers)[n] for n in out]
        assert len([k for k, _ in itertools.groupby(groups)]) == len(sizes)


def test_logs_are_written_where_they_belong() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        rollout(make_tasks(OBEDIENT, groups=2), say("\ud800"), log=log)  # a lone surrogate, as tokenizers may decode to
        assert len(rollout(make_tasks(OBEDIENT, groups=2), say("x"), log=log)) == 2

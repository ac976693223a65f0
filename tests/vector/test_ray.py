"""Environment workers as Ray actors, on a cluster of three nodes made on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import vector_support as vs

import gem_core as gem
from gem_core.rollout import make_tasks, rollout
from gem_core.vector import AsyncVectorEnv
from gem_core.vector.ray_executor import RayExecutor

ray = pytest.importorskip("ray")
OBEDIENT = "test:Ray-v0"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1, resources={"env_node": 4})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gem.register(OBEDIENT, vs.ObedientEnv)
    yield
    gem.unregister(OBEDIENT)


def faults(step: Any) -> list[str | None]:
    return [i["error"]["kind"] if "error" in i else None for i in step[4]]


def test_same_episodes_as_in_this_process_and_faults_cost_one(cluster: Any) -> None:
    ids = [OBEDIENT, "game:GuessTheNumber-v0", OBEDIENT]

    def go(**keywords: Any) -> list[Any]:
        with gem.make_vec(ids, seed=4, **keywords) as envs:
            envs.reset()
            record = []
            for _ in range(15):
                actions = envs.sample_random_action()
                record.append((actions, envs.step(actions)[0]))
            return record

    assert go(executor="ray", workers=2) == go()


def test_actors_are_placed_by_resource_and_end_with_the_vector(cluster: Any) -> None:
    options = {"resources": {"env_node": 1}, "num_cpus": 0}
    envs = gem.make_vec([OBEDIENT] * 4, executor="ray", workers=2, ray_options=options, step_timeout_s=0.5)
    assert isinstance(envs, AsyncVectorEnv)
    executor = envs._executor
    assert isinstance(executor, RayExecutor)
    envs.reset()
    assert ray.available_resources().get("env_node", 0) <= 2
    assert faults(envs.step(["raise", "sleep 30", "a", "a"])) == ["exception", "timeout", None, None]
    assert faults(envs.step(["a", "a", "kill", "a"]))[2] == "killed"
    assert faults(envs.step(["a"] * 4)) == [None] * 4
    handles = [w.link.actor for w in executor.workers]
    envs.close()
    for handle in handles:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(handle.take.remote(), timeout=20)
    assert ray.is_initialized()  # it was not ours to shut down


def test_environments_of_a_lost_node_go_on_elsewhere(cluster: Any) -> None:
    lost = cluster.add_node(num_cpus=1, resources={"doomed": 1, "spare": 1})
    with gem.make_vec(
        [OBEDIENT] * 2, executor="ray", workers=2, ray_options={"resources": {"spare": 0.5}, "num_cpus": 0}
    ) as envs:
        envs.reset()
        node = lost.node_id
        cluster.add_node(num_cpus=1, resources={"spare": 1})
        assert node in {n["NodeID"] for n in ray.nodes() if n["Alive"]}
        assert faults(envs.step(["a", "a"])) == [None, None]
        cluster.remove_node(lost, allow_graceful=False)
        begin = time.monotonic()
        seen: list[str | None] = []
        clean = 0
        while clean < 5 and time.monotonic() - begin < 60:
            now = faults(envs.step(["a", "a"]))
            seen += [kind for kind in now if kind]
            clean = 0 if any(now) else clean + bool(seen)
        assert clean == 5
        assert 1 <= len(seen) <= 2  # each loses the episode that it was in, and no more
        assert set(seen) <= {"killed", "lost"}


def test_rollouts_on_ray(cluster: Any) -> None:
    from gem_core.policies import ScriptedPolicy

    tasks = make_tasks("game:GuessTheNumber-v0", groups=6, group_size=2)
    policy = ScriptedPolicy("game:GuessTheNumber-v0")
    assert rollout(tasks, policy, executor="ray", workers=1, concurrency=6) == rollout(tasks, policy)


def test_process_workers_inside_a_ray_actor(cluster: Any) -> None:
    @ray.remote
    def inside() -> tuple[list[str], list[str]]:
        import gem_core

        out = []
        for executor in (None, "process"):
            with gem_core.make_vec(["game:GuessTheNumber-v0"] * 2, seed=1, executor=executor) as envs:
                observations = envs.reset()[0]
                out.append(observations + envs.step(envs.sample_random_action())[0])
        return out[0], out[1]

    ours, theirs = ray.get(inside.remote(), timeout=60)
    assert ours == theirs

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evaluation_support import CannedServer, CharacterTokenizer, chat, reply

from gem_core.core import Env
from gem_core.episode import Episode
from gem_core.evaluation import (
    EvalResult,
    HumanPolicy,
    OpenAIPolicy,
    PlayerQuitError,
    PolicyUnusableError,
    evaluate,
    load_player,
    plan_tasks,
)
from gem_core.experts import bisect_the_number
from gem_core.session import Generation, Limits, Prompt
from gem_core.tools.tool_env_wrapper import ToolEnvWrapper

GAME = "game:GuessTheNumber-v0"
SAMPLE = {"dataset_name": "sample"}


class Counting:
    """Plays well and counts what it was asked; fails where it is told to."""

    def __init__(self, fail: str = "", most: int = 10**9, error: Exception | None = None) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        self.fail, self.most = fail, most
        self.error = error or RuntimeError("out of order")
        self.config = {"policy": "counting"}

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        await asyncio.sleep(0)
        for p in prompts:
            if (self.fail and p.episode_id.endswith(self.fail) and p.turn == 1) or self.asked.total() >= self.most:
                raise self.error
            self.asked[p.episode_id, p.turn] += 1
        return [Generation(text=bisect_the_number(p.messages, None)) for p in prompts]  # type: ignore[arg-type]


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["episode"] for line in (folder / "episodes.jsonl").open(encoding="utf-8")]


def test_results_are_those_of_the_episodes_and_can_be_read_again(tmp_path: Path) -> None:
    result = evaluate(GAME, "scripted", episodes=12, log=tmp_path)
    assert result.envs[0].metrics["success"].value == 1.0
    assert result.envs[0].metrics["turns"].value == sum(len(e["turns"]) for e in recorded(tmp_path)) / 12
    again = EvalResult.read(tmp_path)
    assert again.to_markdown() == result.to_markdown() == (tmp_path / "results.md").read_text(encoding="utf-8").strip()
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["episodes"] == 12


def test_what_was_interrupted_goes_on_without_asking_again(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    seen: list[str] = []

    def stop(episode: Episode) -> None:
        seen.append(episode.episode_id)
        if len(seen) == 5:
            raise Enough

    first, second = Counting(), Counting()
    with pytest.raises(Enough):
        evaluate(GAME, first, episodes=20, concurrency=4, log=tmp_path, on_episode=stop)
    result = evaluate(GAME, second, episodes=20, concurrency=4, log=tmp_path)
    assert len({e["episode_id"] for e in recorded(tmp_path)}) == len(recorded(tmp_path)) == result.episodes == 20
    assert not set(first.asked) & set(second.asked)  # not even a turn of an unfinished episode
    assert max(first.asked.values()) == max(second.asked.values()) == 1
    assert result.requests["reused_answers"] > 0


def test_more_episodes_and_samples_go_on_in_the_same_folder(tmp_path: Path) -> None:
    policy = Counting()
    evaluate(GAME, policy, episodes=3, log=tmp_path)
    before = policy.asked.total()
    result = evaluate(GAME, policy, episodes=5, samples=2, log=tmp_path)
    assert (result.episodes, result.envs[0].tasks) == (10, 5)
    assert max(policy.asked.values()) == 1
    assert evaluate(GAME, policy, episodes=3, log=tmp_path).episodes == 3
    assert policy.asked.total() > before
    assert len(recorded(tmp_path)) == 10


def test_a_folder_of_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    evaluate(GAME, "scripted", episodes=2, log=tmp_path)
    with pytest.raises(ValueError, match=r"policy.policy='scripted'.*'random'"):
        evaluate(GAME, "random", episodes=2, log=tmp_path)
    with pytest.raises(ValueError, match=r"system_prompt=None.*'Be brief"):
        evaluate(GAME, "scripted", episodes=2, log=tmp_path, system_prompt="Be brief.")
    assert evaluate(GAME, "random", episodes=4, log=tmp_path, resume=False).name == "random"
    assert len(recorded(tmp_path)) == 4


def test_two_evaluations_do_not_share_a_folder_at_once(tmp_path: Path) -> None:
    def clash(episode: Episode) -> None:
        with pytest.raises(ValueError, match="another evaluation is writing"):
            evaluate(GAME, "scripted", episodes=2, log=tmp_path)

    evaluate(GAME, "scripted", episodes=2, log=tmp_path, on_episode=clash)


def test_failed_episodes_are_played_again_from_where_they_failed(tmp_path: Path) -> None:
    broken = Counting(fail=":3:0")
    result = evaluate(GAME, broken, episodes=6, log=tmp_path)
    assert (result.failed, result.envs[0].failed) == (1, 1)
    assert "out of order" in next(iter(result.errors()))
    kept = evaluate(GAME, Counting(), episodes=6, log=tmp_path, retry_failed=False)
    assert kept.failed == 1
    healed = Counting()
    result = evaluate(GAME, healed, episodes=6, log=tmp_path)
    assert result.failed == 0
    assert {e for e, _ in healed.asked} == {f"{GAME}:3:0"}
    assert (f"{GAME}:3:0", 0) not in healed.asked  # its first turn was paid for already
    assert len(recorded(tmp_path)) == 6


def test_a_policy_that_always_fails_ends_the_evaluation(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnusableError, match=r"first 8 episodes all failed.*out of order"):
        evaluate(GAME, Counting(most=0), episodes=100, log=tmp_path, concurrency=4)


def test_an_unusable_policy_ends_it_and_leaves_no_failed_episode_behind(tmp_path: Path) -> None:
    broke = Counting(most=30, error=PolicyUnusableError("no credit"))
    with pytest.raises(PolicyUnusableError, match="no credit"):
        evaluate(GAME, broke, episodes=100, log=tmp_path, concurrency=4)
    assert recorded(tmp_path)
    assert not any(e["stop_reason"] == "policy_error" for e in recorded(tmp_path))


def test_a_context_that_is_full_is_a_limit_not_a_fault(canned: CannedServer) -> None:
    canned.responses = [chat("\\boxed{1}"), reply(400, {"error": {"code": "context_length_exceeded"}})]
    policy = OpenAIPolicy("m", base_url=canned.base_url)
    result = evaluate(GAME, policy, seeds=[3], episodes=1)
    assert result.records[0].stop_reason == "context_length"
    assert (result.failed, result.records[0].turns) == (0, 1)


def test_usage_of_an_endpoint_counts_tokens(canned: CannedServer, tmp_path: Path) -> None:
    canned.responses = [chat("nothing boxed", prompt_tokens=100, completion_tokens=7)]
    policy = OpenAIPolicy("m", base_url=canned.base_url)
    result = evaluate(GAME, policy, episodes=2, log=tmp_path, limits=Limits(max_turns=2))
    turns = result.envs[0].metrics["turns"].value
    assert result.envs[0].metrics["prompt_tokens"].value == 100 * turns
    assert result.envs[0].metrics["sampled_tokens"].value == 7 * turns
    assert EvalResult.read(tmp_path).envs[0].metrics["prompt_tokens"].value == 100 * turns


def test_random_samples_of_one_start_differ_and_can_be_repeated() -> None:
    def play() -> list[tuple[float, int]]:
        return [
            (r.total_reward, r.turns) for r in evaluate("game:Wordle-v0-easy", "random", seeds=[1], samples=6).records
        ]

    assert len(set(play())) > 1
    assert play() == play()


def test_a_dataset_is_played_row_by_row_each_once() -> None:
    plan = plan_tasks("qa:HotpotQA", kwargs=SAMPLE)
    rows = [t.options["index"] for t in plan.tasks if t.options]
    assert sorted(rows) == list(range(len(rows)))
    assert rows != sorted(rows)
    assert [t.options for t in plan_tasks("qa:HotpotQA", 2, kwargs=SAMPLE).tasks] == [{"index": r} for r in rows[:2]]
    assert plan_tasks("qa:HotpotQA", seeds=[1, 0], kwargs=SAMPLE).tasks[0].options == {"index": 1}
    with pytest.raises(ValueError, match=f"has {len(rows)} rows"):
        plan_tasks("qa:HotpotQA", len(rows) + 1, kwargs=SAMPLE)


def test_environments_take_turns_and_plans_grow_at_their_end() -> None:
    ids = [GAME, "game:Wordle-v0-easy"]
    small = [t.episode_id for t in plan_tasks(ids, 2, samples=2).tasks]
    assert [i.split("-v0")[0] for i in small[::2]] == ["game:GuessTheNumber", "game:Wordle"] * 2
    assert small == [t.episode_id for t in plan_tasks(ids, 3, samples=2).tasks][: len(small)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"seeds": [1], "episodes": 2}, "need as many seeds"),
        ({"seeds": -1}, "seed must be a non-negative"),
        ({"env_ids": "game:Wordl-v0"}, "did you mean"),
        ({"env_ids": [GAME, GAME]}, "there twice"),
    ],
)
def test_plans_that_make_no_sense_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan_tasks(**{"env_ids": GAME, **arguments})


def test_tool_use_is_counted() -> None:
    class Calls(Counting):
        async def generate(self, prompts: list[Prompt]) -> list[Generation]:
            text = {0: "<python>print(1)</python>", 1: "<python>1/0</python>"}
            return [Generation(text=text.get(p.turn, "\\boxed{1}")) for p in prompts]

    result = evaluate("qa:HotpotQA", Calls(), episodes=2, env_kwargs=SAMPLE, wrappers="python_tool_no_int_reward")
    assert result.envs[0].metrics["tool_calls"].value == 2.0
    assert result.envs[0].metrics["tool_errors"].value == 1.0
    assert result.config["wrappers"] == "python_tool_no_int_reward"
    with pytest.raises(ValueError, match="no wrapper is called"):
        evaluate(GAME, "scripted", wrappers="pyton_tool")


def test_a_person_plays_and_may_stop(tmp_path: Path) -> None:
    threads: set[str] = set()

    def answer(prompt: Prompt) -> str:
        threads.add(threading.current_thread().name)
        if len(recorded(tmp_path)) == 1:
            raise PlayerQuitError("enough")
        return bisect_the_number(prompt.messages, None)  # type: ignore[arg-type]

    with pytest.raises(PlayerQuitError):
        evaluate(GAME, HumanPolicy(answer), episodes=3, concurrency=1, log=tmp_path)
    assert len(recorded(tmp_path)) == 1
    assert threads == {"gem-human"}


def test_players_by_name_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no expert plays"):
        load_player("scripted", ["math:GSM8K"])
    with pytest.raises(ValueError, match="there is no such folder"):
        load_player(str(tmp_path / "nothing"), [GAME])
    with pytest.raises(ValueError, match="has a method generate"):
        evaluate(GAME, 3)


def test_a_wrapped_environment_that_raises_costs_one_episode(tmp_path: Path) -> None:
    class Fragile(ToolEnvWrapper):
        def __init__(self, env: Env) -> None:
            self.env = env
            self.env_id = env.env_id

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            if seed == 2:
                raise OSError("the disk is gone")
            return self.env.reset(seed)

        def step(self, action: str) -> Any:
            return self.env.step(action)

    result = evaluate(GAME, "scripted", episodes=5, wrappers=[Fragile], log=tmp_path)
    assert (result.failed, result.envs[0].episodes) == (1, 5)
    assert "the disk is gone" in next(iter(result.errors()))


def test_a_local_model_gives_exact_sequences(tmp_path: Path) -> None:
    from gem_core.evaluation import ModelOptions
    from gem_core.tiny import build_tiny, save_tiny

    model = save_tiny(*build_tiny(seed=0, num_layers=1), tmp_path / "model")
    player = load_player(str(model), [GAME], ModelOptions(max_tokens=6, seed=1))
    assert player.max_context_tokens == 4096
    result = evaluate(GAME, player, episodes=2, samples=2, limits=Limits(max_turns=2), log=tmp_path / "run")
    assert result.envs[0].metrics["sampled_tokens"].value > 0
    assert result.envs[0].metrics["prompt_tokens"].value > 0
    for row in recorded(tmp_path / "run"):
        episode = Episode.from_dict(row)
        assert all(s.has_logprobs for s in episode.to_sequences())
    first, second = (r for r in recorded(tmp_path / "run") if r["seed"] == 0)
    assert [t["response_ids"] for t in first["turns"]] != [t["response_ids"] for t in second["turns"]]


def test_token_level_completions_of_a_server_give_exact_sequences(serve: Any, tmp_path: Path) -> None:
    from gem_core.chat import ChatRenderer
    from gem_core.evaluation.players import as_player

    policy = OpenAIPolicy(
        "expert", base_url=serve("--faults", "0.2", "--kinds", "500,half"), mode="completions", max_wait_s=0.05
    )
    player = as_player(policy, [GAME], ChatRenderer(CharacterTokenizer()))
    result = evaluate(GAME, player, episodes=10, log=tmp_path)
    assert result.envs[0].metrics["success"].value == 1.0
    for row in recorded(tmp_path):
        [sequence] = Episode.from_dict(row).to_sequences()
        sampled = [i for i, m in zip(sequence.response_ids, sequence.response_mask, strict=True) if m]
        assert "".join(map(chr, sampled)).replace("\0", "") == "".join(t["action"] for t in row["turns"])
        assert {p for p, m in zip(sequence.logprobs, sequence.response_mask, strict=True) if m} == {-0.5}

"""Oat's actor plays environments: vLLM stands in, everything else is the real thing."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gem_core.episode import Episode

pytestmark = [pytest.mark.l2]


def test_a_step_gives_one_sample_a_turn_as_oats_collector_reads_it(make_args: Any, make_actor: Any, take: Any) -> None:
    from oat.collectors import FeedbackCollector

    args = make_args(dump_episodes_every=1)
    actor = make_actor(args)
    batch = take(actor)
    assert len(batch) == 16
    lines = next(Path(actor.save_path, "episodes").iterdir()).read_text().splitlines()
    played = {e.episode_id: e for e in map(Episode.from_json, lines)}
    for s in batch:
        turn = played[s.episode_id].turns[s.turn]
        assert tuple(s.response_ids) == turn.response_ids
        assert tuple(s.response_logprobs) == turn.logprobs
        assert s.rewards[-1] == pytest.approx(played[s.episode_id].returns(args.gamma)[s.turn])
        assert max(s.response_logprobs) <= 0.0
    metrics = FeedbackCollector(args, [], None).get_metrics(1.0, batch)
    assert metrics["actor/num_transitions"] == 16
    assert metrics["actor/turns"] == pytest.approx(sum(len(e.turns) for e in played.values()) / len(played))
    assert len(take(actor, 24)) == 24  # as many as the learners of this actor asked for


def test_the_same_seed_plays_the_same_games_and_steps_differ(make_args: Any, make_actor: Any, take: Any) -> None:
    first, second = make_actor(make_args()), make_actor(make_args())
    second.llm._seed = first.llm._seed  # vLLM's own seed is the clock's
    a, b, later = take(first), take(second), take(first)
    assert [s.response_ids for s in a] == [s.response_ids for s in b]
    assert {s.episode_id for s in a}.isdisjoint(s.episode_id for s in later)


def test_an_answer_cut_by_the_length_limit_is_an_invalid_action(make_args: Any, make_actor: Any) -> None:
    from gem_oat.environments import training_tasks

    actor = make_actor(make_args(generate_max_length=1))
    groups, _ = actor.collect(training_tasks(actor.args, 0, 0, actor.wrappers), 8)
    turns = [t for group in groups for e in group for t in e.turns]
    cut = [t for t in turns if t.finish_reason == "length"]
    assert cut
    assert all(t.action == "" for t in cut)
    assert all(len(t.response_ids) == 1 for t in turns)


@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_groups_start_alike_and_carry_their_advantages(
    advantage: str, make_args: Any, make_actor: Any, take: Any
) -> None:
    from gem_core.advantages import estimate

    actor = make_actor(make_args(advantage=advantage, group_size=4, dump_episodes_every=1))
    batch = take(actor)
    lines = next(Path(actor.save_path, "episodes").iterdir()).read_text().splitlines()
    played = [Episode.from_json(line) for line in lines]
    groups = defaultdict(list)
    for e in played:
        groups[e.group_id].append(e)
    assert {len(g) for g in groups.values()} == {4}
    assert all(len({e.seed for e in g}) == 1 for g in groups.values())
    assert len({e.seed for e in played}) == len(groups)
    values = estimate(advantage, [e.rewards for e in played], [e.group_id for e in played])
    of = {e.episode_id: v for e, v in zip(played, values, strict=True)}
    for s in batch:
        assert s.rewards[-1] == pytest.approx(of[s.episode_id][s.turn])


def test_episodes_that_ran_out_of_context_are_dropped_or_kept(make_args: Any, make_actor: Any) -> None:
    from gem_oat.environments import training_tasks

    prompt = 24  # room for the first turn only
    dropped = {}
    for keep in (False, True):
        actor = make_actor(make_args(max_model_len=prompt, keep_overlong=keep))
        groups, dropped[keep] = actor.collect(training_tasks(actor.args, 0, 0, actor.wrappers), 8)
        reasons = {str(e.stop_reason) for g in groups for e in g}
        assert ("context_length" in reasons) is keep
    assert dropped[True] == 0
    assert dropped[False] > 0
    actor = make_actor(make_args(max_model_len=6))  # no room at all
    with pytest.raises(RuntimeError, match="context_length after 0 turns"):
        actor.collect(training_tasks(actor.args, 0, 0, actor.wrappers), 8)


def test_evaluation_shares_out_held_out_episodes_of_several_environments(make_args: Any, make_actor: Any) -> None:
    from gem_oat.environments import HELD_OUT_SEED

    args = make_args(
        eval_envs="game:GuessTheNumber-v0|game:GuessTheNumber-v0-easy",
        eval_env_kwargs='{"max_turns": 4}|{"max_turns": 3}',
        eval_wrappers="request_once",
        eval_episodes=5,
        eval_n=2,
        eval_steps=1,
    )
    actor = make_actor(args)
    shares = [actor.evaluate_envs(i, 3) for i in range(3)]
    assert list(shares[0]) == args.eval_envs.split("|")
    for env_id, turns in zip(shares[0], (4, 3), strict=True):
        played = [Episode.from_json(line) for share in shares for line in share[env_id]]
        assert sorted(e.seed or 0 for e in played) == [HELD_OUT_SEED + i // 2 for i in range(10)]
        assert all(len(e.turns) <= turns for e in played)


@pytest.mark.parametrize("prompt", ["chat", "plain"])
def test_a_rebuilt_context_writes_the_instruction_around_every_prompt(
    prompt: str, make_args: Any, make_actor: Any, take: Any
) -> None:
    text = "a number is hidden\n{observation}\nguess \\boxed{number}."
    options = {"context": "rebuild", "wrappers": "request_once,concat", "instruction": text, "prompt": prompt}
    actor = make_actor(make_args(**options))
    batch = take(actor)
    start, end = ("<|user|>", "<|end|><|assistant|>") if prompt == "chat" else ("", "")
    assert max(s.turn for s in batch) > 0
    for s in batch:
        assert s.prompt.startswith(f"{start}a number is hidden\n")
        assert s.prompt.endswith(f"\nguess \\boxed{{number}}.{end}")
        assert s.prompt.count("a number is hidden") == 1
        if s.turn:
            assert "lower" in s.prompt or "higher" in s.prompt


@pytest.mark.l1
def test_arguments_that_make_no_sense_are_named(make_args: Any) -> None:
    for changes, message in [
        ({"env_kwargs": "[1]"}, "env_kwargs must be a JSON object"),
        ({"gamma": 1.5}, "gamma must lie in 0 to 1"),
        ({"advantage": "grpo", "group_size": 1}, "group_size must be at least 2"),
        ({"rollout_batch_size_per_device": 12}, "must be a multiple of"),
        ({"train_batch_size": 20}, "train_batch_size=20"),
        ({"instruction": "win"}, "{observation}"),
        ({"eval_envs": "a|a"}, "eval_envs must differ"),
        ({"eval_envs": "a|b|c", "eval_env_kwargs": "{}|{}"}, "2 items for 3"),
        ({"reinforce_update": True, "beta": 0.1}, "no reference policy"),
        ({"asynchronous": True}, "asynchronous"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_args(**changes)

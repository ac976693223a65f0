"""``gem_rl2.generate``: episodes, aborted generations, faults; on the repository's ``Sample`` or the record of it."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from typing import Any

import gem_rl2
import pytest
import rl2_recorded as recorded
from contract import episodes
from gem_rl2.player import PLAYERS
from gem_rl2.rows import metrics, state_dicts
from rl2_helpers import CLOSED, GUESS, REPOSITORY, Scripted, hanging_row, listening, train_config
from support import QWEN_LIKE, build_tokenizer

from gem_core import Episode

pytestmark = pytest.mark.l1
TOKENIZER = build_tokenizer(QWEN_LIKE)
EOS = TOKENIZER.eos_token_id
KEEP = gem_rl2.GemSettings(failed_loss="keep")

if REPOSITORY:
    from RL2.datasets import Sample
else:
    Sample = recorded.sample_class()


@pytest.fixture(autouse=True)
def _communication(monkeypatch: pytest.MonkeyPatch) -> None:
    if not REPOSITORY:
        recorded.install(monkeypatch)


def with_http(main: Any) -> Any:
    """Runs a coroutine function inside RL2's HTTP session, where there is one."""
    if REPOSITORY:
        from RL2.utils.communication import with_session

        main = with_session(main)
    return asyncio.run(main())


def play(server: Scripted, rows: list[dict[str, Any]], **config: Any) -> list[Any]:
    """Plays each row once; returns the samples."""
    samples = [Sample(sample={"extra_info": dict(row)} if "env_id" in row else row) for row in rows]

    async def main() -> None:
        async with listening(server.app()) as url:
            await asyncio.gather(*(gem_rl2.generate(train_config(**config), TOKENIZER, url, s) for s in samples))

    with_http(main)
    return samples


def test_every_field_of_the_contract_episodes() -> None:
    several = failed = 0
    for episode in episodes(50):
        sequences = [s for s in episode.to_sequences() if s.response_ids]
        made = state_dicts(episode, KEEP, EOS)
        several += len(sequences) > 1
        failed += episode.failed
        assert len(made) == max(1, len(sequences))
        for d, s in zip(made, sequences, strict=False):
            n = len(s.prompt_ids)
            assert list(d) == list(recorded.CONTRACT["state_dict"])
            assert {len(v) for v in d.values()} == {len(s)}
            assert d["states"] == s.prompt_ids + s.response_ids
            assert d["action_mask"] == [0] * n + s.response_mask
            assert d["actions"] == [t if m else 0 for t, m in zip(d["states"], d["action_mask"], strict=True)]
            assert d["logps"] == [0.0] * n + s.logprobs
            assert d["rewards"] == [0.0] * n + s.rewards
        if episode.num_sampled_tokens:
            assert sum(sum(d["rewards"]) for d in made) == pytest.approx(episode.total_reward)
        assert metrics(episode)["rewards"] == [episode.total_reward]
        assert all(values for values in metrics(episode).values())  # RL2 divides by their number
    assert several > 10
    assert failed > 2


def test_each_turns_reward_lies_on_its_own_last_token() -> None:
    for episode in episodes(50):
        if any(not t.response_ids for t in episode.turns):
            continue  # such a turn's reward goes to a neighbour
        got = [
            r
            for d in state_dicts(episode, KEEP, EOS)
            for r, here, after in zip(d["rewards"], d["action_mask"], [*d["action_mask"][1:], 0], strict=True)
            if here and not after
        ]
        assert got == episode.rewards


def test_failed_episodes_are_masked() -> None:
    settings = gem_rl2.GemSettings()
    for episode in episodes(50):
        sampled = sum(sum(d["action_mask"]) for d in state_dicts(episode, settings, EOS))
        assert sampled == (0 if episode.failed else episode.num_sampled_tokens)
    assert state_dicts(Episode("e"), settings, EOS)[0]["states"] == [EOS, EOS]


def test_the_sample_of_a_played_episode() -> None:
    server = Scripted(TOKENIZER, "I say \\boxed{99}")
    (sample,) = play(server, [GUESS])
    assert sample.status is Sample.Status.DONE
    assert sample.turn == 3
    (d,) = sample.state_dicts
    assert sum(d["action_mask"]) == 3 * len(server.answer)
    assert [t for t, m in zip(d["states"], d["action_mask"], strict=True) if m] == server.answer * 3
    assert [lp for lp, m in zip(d["logps"], d["action_mask"], strict=True) if m] == [
        -0.25 * (i + 1) for i in range(len(server.answer))
    ] * 3
    # Token ids go in: each prompt is what was seen and sampled before, and more.
    prompts = [c["input_ids"] for c in server.calls]
    assert prompts[1][: len(prompts[0]) + len(server.answer)] == prompts[0] + server.answer
    assert all(c["return_logprob"] and c["sampling_params"]["no_stop_trim"] for c in server.calls)
    assert "stop" not in server.calls[0]["sampling_params"]
    assert sample.metrics["response_length"] == [float(len(server.answer))] * 3
    assert sample.metrics["gem/stop/truncated"] == [1.0]
    json.dumps({k: v for k, v in vars(sample).items() if k != "status"})  # RL2 saves samples as JSON


def test_samples_of_one_row_play_the_same_seed_and_other_rows_others() -> None:
    row = {**GUESS, "env_id": "game:GuessTheNumber-v0-random", "env_kwargs": "{}"}
    samples = play(Scripted(TOKENIZER, "\\boxed{1}"), [row, row, *({**row, "seed": s} for s in range(12))])
    firsts = [tuple(s.state_dicts[0]["states"][:60]) for s in samples]
    assert firsts[0] == firsts[1]
    assert len(set(firsts)) > 3


def test_an_interrupted_generation_goes_on_at_once_where_rl2_does_not_collect_it() -> None:
    whole = play(Scripted(TOKENIZER, "I say \\boxed{99}"), [GUESS])[0]
    server = Scripted(TOKENIZER, "I say \\boxed{99}", piece=3)
    pieces = play(server, [GUESS])[0]
    assert len(server.calls) > 6
    for name in ("states", "actions", "action_mask", "rewards"):
        assert pieces.state_dicts[0][name] == whole.state_dicts[0][name], name
    first, second = server.calls[:2]
    assert second["input_ids"] == [*first["input_ids"], *server.answer[:3]]
    assert second["sampling_params"]["max_new_tokens"] == first["sampling_params"]["max_new_tokens"] - 3


def test_partial_rollout_keeps_the_partial_answer_and_the_environment() -> None:
    whole = play(Scripted(TOKENIZER, "I say \\boxed{99}"), [GUESS])[0]
    server = Scripted(TOKENIZER, "I say \\boxed{99}", piece=3)
    sample = Sample(sample={"extra_info": dict(GUESS)})
    calls = 0

    async def main() -> None:
        nonlocal calls
        config = train_config(partial_rollout=True)
        async with listening(server.app()) as url:
            while sample.status is not Sample.Status.DONE:
                await gem_rl2.generate(config, TOKENIZER, url, sample)
                calls += 1
                assert sample.status in (Sample.Status.ABORTED, Sample.Status.DONE)
                assert len(PLAYERS) == (sample.status is Sample.Status.ABORTED)
                json.dumps(sample.sample)
                copy.deepcopy(sample)
            await gem_rl2.generate(config, TOKENIZER, url, sample)  # a finished sample of a group is left alone

    with_http(main)
    assert calls > 3
    for name in ("states", "actions", "action_mask", "rewards"):
        assert sample.state_dicts[0][name] == whole.state_dicts[0][name], name
    assert len(sample.metrics["rewards"]) == 1


def test_a_rebuilt_context_gives_one_sequence_a_turn() -> None:
    gem_rl2.configure(gem_rl2.GemSettings(context="rebuild", wrappers="concat_with_action"))
    (sample,) = play(Scripted(TOKENIZER, "\\boxed{99}"), [GUESS])
    assert len(sample.state_dicts) == 3
    for d in sample.state_dicts:
        first = d["action_mask"].index(1)
        assert all(d["action_mask"][first:])


def test_a_hang_or_an_exception_costs_its_own_episode_only() -> None:
    gem_rl2.configure(gem_rl2.GemSettings(env_timeout_s=0.4))
    CLOSED.clear()
    started = time.monotonic()
    samples = play(Scripted(TOKENIZER, "7"), [hanging_row(seed) for seed in range(5)])
    assert time.monotonic() - started < 4.0  # the hanging calls take five seconds
    assert all(s.status is Sample.Status.DONE for s in samples)
    assert [s.metrics["gem/failed"][0] for s in samples] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert [s.turn for s in samples] == [0, 2, 2, 3, 3]
    assert [sum(sum(d["action_mask"]) for d in s.state_dicts) > 0 for s in samples] == [False] * 3 + [True] * 2
    # The turn that failed earned nothing, and what was earned before stays in the log.
    assert [s.metrics["rewards"][0] for s in samples] == [0.0, 0.5, 0.5, 3.0, 3.0]
    assert sorted(CLOSED) == [2, 3, 4]  # what hangs is not entered again


def test_an_engine_that_refuses_stops_the_run_and_closes_the_environment() -> None:
    from aiohttp import web

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"object": "error", "message": "too long"})

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/generate", refuse)
        async with listening(app) as url:
            await gem_rl2.generate(train_config(), TOKENIZER, url, Sample(sample=hanging_row(3)))

    CLOSED.clear()
    with pytest.raises(ValueError, match="too long"):
        with_http(main)
    assert CLOSED == [3]


def test_limits_end_the_episode_before_the_engine_or_rl2_would() -> None:
    room = len(TOKENIZER.encode("\\boxed{99}", add_special_tokens=False)) + 1
    gem_rl2.configure(gem_rl2.GemSettings(max_tokens_per_turn=room, max_turns=2))
    server = Scripted(TOKENIZER, "\\boxed{99}" + " word" * 30)
    (sample,) = play(server, [GUESS])
    assert [c["sampling_params"]["max_new_tokens"] for c in server.calls] == [room, room]
    assert sample.metrics["length_clip_ratio"] == [1.0, 1.0]
    assert sample.metrics["gem/stop/max_turns"] == [1.0]
    length = len(sample.state_dicts[0]["states"])
    gem_rl2.configure(gem_rl2.GemSettings(max_tokens_per_turn=room, max_context_tokens=length - 2 * room))
    (sample,) = play(Scripted(TOKENIZER, "\\boxed{99}" + " word" * 30), [GUESS])
    assert sample.metrics["gem/stop/context_length"] == [1.0]
    assert len(sample.state_dicts[0]["states"]) <= length - 2 * room


def test_a_row_without_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"python -m gem_rl2\.dataset"):
        play(Scripted(TOKENIZER, "1"), [{"prompt": "2 + 2"}])

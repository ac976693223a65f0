"""Token exactness of EpisodeSession, its limits, its stop reasons and its faults."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import DROPS_REASONING, FORGETS, ScriptEnv, build_tokenizer

import gem_core as gem
from gem_core import Episode, EpisodeSession, Generation, Limits, StopReason, Turn
from gem_core.chat import ChatRenderer, PlainRenderer

RENDERERS = {
    "append": ChatRenderer(build_tokenizer()),
    "drops_reasoning": ChatRenderer(build_tokenizer(DROPS_REASONING)),
    "forgets": ChatRenderer(build_tokenizer(FORGETS)),
    "kept_by_force": ChatRenderer(build_tokenizer(DROPS_REASONING), history="append"),
    "plain": PlainRenderer(build_tokenizer(None)),
}
VOCABULARY = len(build_tokenizer())
EOS = 2
texts = st.text(max_size=30)
token_lists = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


@st.composite
def plays(draw: st.DrawFn) -> list[tuple[list[int], str, float, str]]:
    """(sampled ids, observation after them, reward, finish reason) a turn."""
    turns = []
    for _ in range(draw(st.integers(1, 7))):
        ids = draw(token_lists)
        finish = draw(st.sampled_from(["stop", "length"]))
        if finish == "stop" and draw(st.booleans()):
            ids = [*ids, EOS]
        turns.append((ids, draw(texts), draw(st.floats(-2, 2)), finish))
    return turns


def play(renderer: Any, turns: list[Any], context: Any = "append") -> tuple[Episode, list[tuple[list[int], list[int]]]]:
    """Plays the turns; returns the episode and what the policy was given and sampled at each of them."""
    steps = [(obs, r, i == len(turns) - 1, False, {}) for i, (_, obs, r, _) in enumerate(turns)]
    session = EpisodeSession(ScriptEnv(steps), renderer, context=context)
    seen, prompt = [], session.start()
    for ids, _, _, finish in turns:
        assert prompt is not None
        seen.append((prompt.token_ids, ids))
        logprobs = [-0.5 - k / 100 for k in range(len(ids))]
        prompt = session.submit(Generation(ids, logprobs, finish))
    assert prompt is None
    return session.episode, seen


@pytest.mark.parametrize("name", sorted(RENDERERS))
@pytest.mark.parametrize("context", ["append", "rebuild"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=plays())
def test_sequences_are_exactly_what_the_policy_was_given_and_sampled(name: str, context: str, turns: Any) -> None:
    episode, seen = play(RENDERERS[name], turns, context)
    sequences = episode.to_sequences()
    position = {}  # turn -> (sequence, index in it of the first sampled token)
    for s in sequences:
        n = len(s.response_ids)
        assert len(s.response_mask) == len(s.logprobs) == len(s.turn_index) == len(s.rewards) == n
        for k, t in enumerate(s.turn_index):
            assert s.response_mask[k] == (t >= 0)
            if t < 0:
                assert s.logprobs[k] == 0.0
                assert s.rewards[k] == 0.0
            else:
                position.setdefault(t, (s, k))
    for t, (given_ids, sampled) in enumerate(seen):
        if not sampled:
            assert t not in position
            continue
        s, k = position[t]
        assert s.prompt_ids + s.response_ids[:k] == given_ids
        assert s.response_ids[k : k + len(sampled)] == sampled
        assert s.turn_index[k : k + len(sampled)] == [t] * len(sampled)
        assert s.turn_index.count(t) == len(sampled)
        assert s.logprobs[k : k + len(sampled)] == [-0.5 - j / 100 for j in range(len(sampled))]
    sampled_total = sum(len(ids) for _, ids in seen)
    assert sum(sum(s.response_mask) for s in sequences) == sampled_total
    if sampled_total:
        assert sum(sum(s.rewards) for s in sequences) == pytest.approx(episode.total_reward, abs=1e-9)
    if context == "rebuild":
        assert len(sequences) == len(turns)


@pytest.mark.parametrize("name", ["append", "plain", "kept_by_force"])
def test_an_appending_renderer_gives_one_sequence(name: str) -> None:
    turns = [([5, 6, EOS], "next", 0.5, "stop"), ([7], "more", 0.0, "length"), ([9, EOS], "end", 1.0, "stop")]
    episode, _ = play(RENDERERS[name], turns)
    (sequence,) = episode.to_sequences()
    assert [r for r in sequence.rewards if r] == [0.5, 1.0]


def test_random_ids_are_kept_though_most_do_not_survive_decode_and_encode() -> None:
    tokenizer, rng, broken = build_tokenizer(), random.Random(0), 0
    for _ in range(500):
        ids = [rng.randrange(3, VOCABULARY) for _ in range(12)]
        broken += tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False) != ids
        episode, _ = play(RENDERERS["append"], [([*ids, EOS], "o", 0.0, "stop"), (ids, "o", 1.0, "length")])
        (s,) = episode.to_sequences()
        assert [t for t, m in zip(s.response_ids, s.response_mask, strict=True) if m] == [*ids, EOS, *ids]
    assert broken > 300  # the streams are a real test


def test_the_delta_is_the_templates_own() -> None:
    tokenizer = build_tokenizer()
    reply = tokenizer.encode("I say \\boxed{10}", add_special_tokens=False)
    for sampled, finish in (([*reply, EOS], "stop"), (reply, "length")):
        env = ScriptEnv([("lower", 0.0, False, False, {"suffix": "Go on."}), ("right", 1.0, True, False, {})])
        session = EpisodeSession(env, RENDERERS["append"], system_prompt="Be brief.")
        session.start()
        prompt = session.submit(Generation(sampled, None, finish))
        whole = tokenizer.apply_chat_template(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Begin."},
                {"role": "assistant", "content": "I say \\boxed{10}"},
                {"role": "user", "content": "lower\nGo on."},
            ],
            tokenize=False,
            add_generation_prompt=True,
        )
        assert prompt is not None
        assert prompt.token_ids == tokenizer.encode(whole, add_special_tokens=False)
        session.submit(Generation([EOS]))
        (s,) = session.episode.to_sequences()
        # A missing end-of-turn token is the environment's, a sampled one the policy's.
        assert s.response_mask[len(reply)] == (finish == "stop")


def test_a_template_that_drops_reasoning_starts_a_new_sequence() -> None:
    tokenizer = build_tokenizer(DROPS_REASONING)
    think = [*tokenizer.encode("<think>\nhm\n</think>\n\n\\boxed{1}", add_special_tokens=False), EOS]
    plain = [*tokenizer.encode("\\boxed{2}", add_special_tokens=False), EOS]
    episode, _ = play(RENDERERS["drops_reasoning"], [(think, "a", 0.1, "stop"), (plain, "b", 0.2, "stop")])
    first, second = episode.to_sequences()
    assert "hm" in tokenizer.decode(first.input_ids)
    assert "hm" not in tokenizer.decode(second.input_ids)
    assert [sum(first.rewards), sum(second.rewards)] == [pytest.approx(0.1), pytest.approx(0.2)]
    episode, _ = play(RENDERERS["drops_reasoning"], [(plain, "a", 0.1, "stop"), (plain, "b", 0.2, "stop")])
    assert len(episode.to_sequences()) == 1


def test_rewards_of_turns_without_tokens_still_add_up() -> None:
    turns = [([], "a", 1.0, "stop"), ([5, EOS], "b", 2.0, "stop"), ([], "c", 4.0, "stop")]
    episode, _ = play(RENDERERS["append"], turns)
    assert [r for s in episode.to_sequences() for r in s.rewards if r] == [7.0]


def test_an_aborted_generation_is_kept_and_resumed() -> None:
    env = ScriptEnv([("done", 1.0, True, False, {})])
    session = EpisodeSession(env, RENDERERS["append"], limits=Limits(max_tokens_per_turn=8))
    first = session.start()
    assert first is not None
    again = session.submit(Generation([11, 12], [-0.1, -0.2], "abort"))
    assert again is not None
    assert again.token_ids == [*first.token_ids, 11, 12]
    assert again.max_new_tokens == 6
    assert env.actions == []
    assert session.submit(Generation([13, EOS], [-0.3, -0.4])) is None
    (turn,) = session.episode.turns
    assert turn.response_ids == (11, 12, 13, EOS)
    assert turn.logprobs == (-0.1, -0.2, -0.3, -0.4)
    assert len(session.episode.to_sequences()) == 1


def test_endless_aborts_end_the_episode() -> None:
    session = EpisodeSession(ScriptEnv([]), RENDERERS["append"], limits=Limits(max_resumes=3))
    prompt, calls = session.start(), 0
    while prompt is not None:
        prompt, calls = session.submit(Generation([], [], "abort")), calls + 1
    assert calls == 4
    assert session.episode.stop_reason is StopReason.ABORTED
    assert session.episode.failed


def going_on(n: int) -> ScriptEnv:
    return ScriptEnv([("go on", 0.25, False, False, {})] * n)


def test_no_limit_on_resumes_is_no_limit() -> None:
    session = EpisodeSession(going_on(1), RENDERERS["append"], limits=Limits(max_resumes=None))
    prompt = session.start()
    for _ in range(200):
        assert prompt is not None
        prompt = session.submit(Generation([], [], "abort"))
    assert not session.done


def test_limits_stop_with_their_own_reason() -> None:
    def run(limits: Limits, clock: Any = lambda: 0.0) -> Episode:
        session = EpisodeSession(going_on(50), RENDERERS["append"], limits=limits, clock=clock)
        prompt = session.start()
        while prompt is not None:
            n = 5 if prompt.max_new_tokens is None else min(5, prompt.max_new_tokens)
            prompt = session.submit(Generation([9] * n, [-1.0] * n, "length"))
        return session.episode

    assert run(Limits(max_turns=3)).stop_reason is StopReason.MAX_TURNS
    assert len(run(Limits(max_turns=3)).turns) == 3
    for limits in (Limits(max_context_tokens=120), Limits(max_response_tokens=100)):
        episode = run(limits)
        assert episode.stop_reason is StopReason.CONTEXT_LENGTH
        (s,) = episode.to_sequences()
        assert len(s) <= 120
        assert len(s.response_ids) <= 100
        assert s.response_mask[-1] == 1  # no observation that nobody saw
    ticks = iter(range(100))
    assert run(Limits(wall_clock_s=4), clock=lambda: next(ticks)).stop_reason is StopReason.WALL_CLOCK
    assert run(Limits(max_turns=2)).truncated
    assert not run(Limits(max_turns=2)).terminated


def test_a_first_prompt_beyond_the_limit_ends_the_episode_before_its_first_turn() -> None:
    for limits in (Limits(max_context_tokens=4), Limits(max_prompt_tokens=4)):
        session = EpisodeSession(going_on(1), RENDERERS["append"], limits=limits)
        assert session.start() is None
        assert session.episode.stop_reason is StopReason.CONTEXT_LENGTH
        assert session.episode.to_sequences() == []


def test_an_exception_in_the_environment_is_recorded_and_costs_only_its_episode() -> None:
    env = ScriptEnv([("go on", 0.5, False, False, {}), RuntimeError("disk full")])
    session = EpisodeSession(env, RENDERERS["append"])
    session.start()
    session.submit(Generation([5, EOS]))
    assert session.submit(Generation([6, EOS])) is None
    episode = session.episode
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert episode.error == "step: RuntimeError: disk full"
    assert episode.rewards == [0.5, 0.0]
    assert sum(sum(s.response_mask) for s in episode.to_sequences()) == 4
    with pytest.raises(RuntimeError, match="is over"):
        session.submit(Generation([6]))
    loud = EpisodeSession(ScriptEnv([RuntimeError("x")]), RENDERERS["append"], on_env_error="raise")
    loud.start()
    with pytest.raises(RuntimeError, match="x"):
        loud.submit(Generation([5]))
    assert loud.episode.failed


def test_a_failing_reset_and_a_nan_reward_are_environment_errors() -> None:
    class Broken(ScriptEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            raise OSError("no board")

    session = EpisodeSession(Broken([]), RENDERERS["append"])
    assert session.start() is None
    assert session.episode.error == "reset: OSError: no board"
    session = EpisodeSession(ScriptEnv([("o", float("nan"), False, False, {})]), RENDERERS["append"])
    session.start()
    assert session.submit(Generation([5])) is None
    assert "reward is nan" in str(session.episode.error)


def test_length_stop_can_be_sent_as_an_invalid_action() -> None:
    for mode, expected in (("pass", "x"), ("invalid", "")):
        env = ScriptEnv([("o", 0.0, True, False, {})])
        session = EpisodeSession(env, None, length_stop=mode)  # type: ignore[arg-type]
        session.start()
        session.submit(Generation(text="x", finish_reason="length"))
        assert env.actions == [expected]


def test_text_only_sessions_carry_messages_and_no_sequences() -> None:
    session = EpisodeSession(going_on(2), limits=Limits(max_turns=2))
    prompt = session.start()
    assert prompt is not None
    assert prompt.messages == [{"role": "user", "content": "Begin."}]
    prompt = session.submit(Generation(text="hello"))
    assert prompt is not None
    assert [m["role"] for m in prompt.messages] == ["user", "assistant", "user"]
    session.submit(Generation(text="bye"))
    with pytest.raises(ValueError, match="without token ids"):
        session.episode.to_sequences()
    other = EpisodeSession(going_on(1))
    other.start()
    with pytest.raises(ValueError, match=r"needs Generation\.text"):
        other.submit(Generation([1]))


def test_wrong_calls_are_named() -> None:
    with pytest.raises(ValueError, match=r"Limits\.max_turns.*0"):
        Limits(max_turns=0)
    with pytest.raises(ValueError, match="'sideways'"):
        EpisodeSession(going_on(1), context="sideways")  # type: ignore[arg-type]
    session = EpisodeSession(going_on(1), RENDERERS["append"])
    with pytest.raises(RuntimeError, match="not started"):
        session.submit(Generation([1]))
    session.start()
    with pytest.raises(ValueError, match="2 log probabilities for 1"):
        session.submit(Generation([1], [0.0, 0.0]))


@settings(max_examples=40, deadline=None)
@given(turns=plays())
def test_episodes_round_trip_through_json(turns: Any) -> None:
    episode, _ = play(RENDERERS["append"], turns)
    line = episode.to_json()
    assert "\n" not in line
    again = Episode.from_json(line)
    assert again == episode
    assert again.to_sequences() == episode.to_sequences()
    with pytest.raises(ValueError, match="colour"):
        Episode.from_dict({**json.loads(line), "colour": 1})


def test_a_game_is_played_by_tokens() -> None:
    tokenizer = build_tokenizer()
    env = gem.make("game:GuessTheNumber", max_turns=8)
    session = EpisodeSession(env, ChatRenderer(tokenizer), seed=3)
    prompt, low, high = session.start(), 1, 20
    while prompt is not None:
        guess = (low + high) // 2
        prompt = session.submit(Generation([*tokenizer.encode(f"\\boxed{{{guess}}}", add_special_tokens=False), EOS]))
        if prompt is not None:
            low, high = (guess + 1, high) if "higher" in prompt.messages[-1]["content"] else (low, guess - 1)
    assert session.episode.success
    assert session.episode.total_reward == 1.0
    assert session.episode.stop_reason is StopReason.TERMINATED
    assert session.episode.env_id == "game:GuessTheNumber-v0"


def test_half_a_character_survives_json_and_utf_8() -> None:
    episode = Episode("x", turns=[Turn("half \ud83d of it", "ünï", 0.0)], final_observation="\udc00")
    line = episode.to_json()
    assert Episode.from_json(line.encode("utf-8").decode("utf-8")) == episode
    plain = Episode("x", turns=[Turn("café", "ünï", 0.0)]).to_json()
    assert "café" in plain  # and is not escaped where there is no need

"""``GemAgentExecutor.execute`` against a scripted engine: tokens in and out, limits, aborts, groups, failing envs."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gem_openrlhf import GemAgentExecutor, GemSettings
from support import DROPS_REASONING, QWEN_LIKE, build_tokenizer
from vllm import SamplingParams

import gem_core as gem

pytestmark = pytest.mark.l1
TOKENIZER = build_tokenizer(QWEN_LIKE)
EOS = TOKENIZER.eos_token_id
GUESS = "game:GuessTheNumber-v0"


class Engine:
    """Answers every prompt with the same text, at most ``piece`` tokens a call (an abort cuts the rest)."""

    def __init__(self, text: str, piece: int | None = None) -> None:
        self.answer = [*TOKENIZER.encode(text, add_special_tokens=False), EOS]
        self.piece = piece
        self.calls: list[tuple[list[int], SamplingParams]] = []
        self.given: list[int] = []

    async def generate(self, prompt_token_ids: list[int], sampling_params: SamplingParams) -> Any:
        self.calls.append((list(prompt_token_ids), sampling_params))
        left = self.answer[len(self.given) :]
        tokens = left[: self.piece][: sampling_params.max_tokens]
        self.given += tokens
        done = len(self.given) == len(self.answer)
        cut = len(tokens) == sampling_params.max_tokens and not done
        if done or cut:
            self.given = []
        logprobs = [{t: SimpleNamespace(logprob=-0.01 * t), 0: SimpleNamespace(logprob=-9.0)} for t in tokens]
        output = SimpleNamespace(
            token_ids=tuple(tokens),
            logprobs=None if sampling_params.logprobs is None else logprobs,
            finish_reason="length" if cut else "stop" if done else "abort",
        )
        return SimpleNamespace(outputs=[output])


def run(engine: Engine, label: Any = None, *, max_length: int = 1024, logprobs: int | None = 1, **settings: Any) -> Any:
    params = SamplingParams(max_tokens=settings.pop("max_tokens", 24), min_tokens=1, logprobs=logprobs)
    executor = GemAgentExecutor(GemSettings(**{"env_id": GUESS, "env_kwargs": {"max_turns": 3}, **settings}))
    return asyncio.run(
        executor.execute("prompt", label, params, max_length, TOKENIZER, engine),
    )


def test_sampled_tokens_are_kept_and_the_next_prompt_extends_them() -> None:
    engine = Engine("I say \\boxed{99}")
    out = run(engine)
    prompts = [p for p, _ in engine.calls]
    assert len(prompts) == 3
    for (first, end), prompt, after in zip(out["action_ranges"], prompts, [*prompts[1:], None], strict=True):
        assert out["observation_tokens"][:first] == prompt
        assert out["observation_tokens"][first:end] == engine.answer
        if after is not None:
            assert after[:end] == out["observation_tokens"][:end]
    sampled = {k for first, end in out["action_ranges"] for k in range(first, end)}
    for k, (token, logprob) in enumerate(zip(out["observation_tokens"], out["rollout_log_probs"], strict=True)):
        assert logprob == (pytest.approx(-0.01 * token) if k in sampled else 0.0)
    assert out["reward"] == pytest.approx(sum(out["gem"]["record"].episode.rewards))
    assert out["extra_logs"]["gem/turns"] == 3.0
    assert (out["prompt"], out["label"], out["images"], out["mm_train_inputs"]) == ("prompt", None, None, None)


def test_an_aborted_generation_is_resumed_where_it_stopped() -> None:
    whole, pieces = Engine("I say \\boxed{99}"), Engine("I say \\boxed{99}", piece=3)
    expected, resumed = run(whole), run(pieces)
    for key in ("observation_tokens", "action_ranges", "rollout_log_probs", "reward"):
        assert resumed[key] == expected[key], key
    assert len(pieces.calls) > len(whole.calls)
    assert pieces.calls[1][0] == [*pieces.calls[0][0], *pieces.answer[:3]]
    assert pieces.calls[1][1].max_tokens == pieces.calls[0][1].max_tokens - 3


def test_limits_are_openrlhfs_and_the_settings() -> None:
    three_turns = {"env_id": "test:Hangs-v0", "env_kwargs": {"at": -1}}
    engine = Engine("word " * 60)
    out = run(engine, max_tokens=9, **three_turns)
    assert [p.max_tokens for _, p in engine.calls] == [9, 9, 9]
    assert out["truncated"]
    engine = Engine("word " * 60)
    run(engine, max_tokens=9, max_tokens_per_turn=5, **three_turns)
    assert [p.max_tokens for _, p in engine.calls] == [5, 5, 5]
    engine = Engine("word " * 60)
    length = len(run(engine, max_tokens=None, max_length=100, **three_turns)["observation_tokens"])
    assert length <= 100
    assert engine.calls[0][1].max_tokens == 100 - len(engine.calls[0][0])
    assert run(Engine("\\boxed{99}"), max_turns=1)["extra_logs"]["gem/turns"] == 1.0


def test_no_log_probabilities_where_openrlhf_asked_for_none() -> None:
    assert run(Engine("\\boxed{99}"), logprobs=None)["rollout_log_probs"] is None


def test_samples_of_a_row_are_a_group_with_one_start() -> None:
    settings = {"env_id": "game:GuessTheNumber-v0-random", "env_kwargs": {}}

    def start(label: Any) -> tuple[Any, str, str]:
        out = run(Engine("\\boxed{1}"), label, **settings)
        record = out["gem"]["record"].episode
        return tuple(out["observation_tokens"][: out["action_ranges"][0][0]]), record.group_id, record.episode_id

    (a, group_a, id_a), (b, group_b, id_b) = start("row 1"), start("row 1")
    assert (a, group_a) == (b, group_b)
    assert id_a != id_b
    others = [start(f"row {i}") for i in range(2, 14)]
    assert len({o[0] for o in others}) > 3
    assert len({o[1] for o in others}) == 12


def test_a_row_names_its_own_env_and_seed() -> None:
    label = json.dumps({"env_id": "game:Hangman-v0-easy", "env_kwargs": {"max_turns": 2}, "seed": 3})
    out = run(Engine("\\boxed{a}"), label)
    assert out["gem"]["record"].episode.env_id == "game:Hangman-v0-easy"
    assert out["gem"]["record"].episode.group_id.endswith("#3")
    assert out["extra_logs"]["gem/turns"] == 2.0


class Hangs(gem.Env):
    """Hangs in the step named by its argument (0: the reset)."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.turn = at, 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> tuple[str, dict[str, Any]]:
        time.sleep(1.0 if self.at == 0 else 0)
        return "Say something.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        time.sleep(1.0 if self.turn == self.at else 0)
        return "Again.", 0.5, self.turn == 3, False, {}


class Broken(gem.Env):
    def __init__(self) -> None:
        raise OSError("the data set is gone")


@pytest.fixture(scope="module", autouse=True)
def failing_envs() -> Any:
    import flaky_envs  # noqa: F401

    gem.register("test:Hangs-v0", Hangs)
    gem.register("test:Broken-v0", Broken)
    yield
    gem.unregister("test:Hangs-v0")
    gem.unregister("test:Broken-v0")


@pytest.mark.parametrize(
    ("label", "turns", "tokens"),
    [
        ({"env_id": "test:Flaky-v0", "seed": 0}, 0, 2),  # the reset raises
        ({"env_id": "test:Flaky-v0", "seed": 1}, 2, None),  # the second step raises
        ({"env_id": "test:Hangs-v0", "env_kwargs": {"at": 0}, "env_timeout_s": 0.2}, 0, 2),
        ({"env_id": "test:Hangs-v0", "env_kwargs": {"at": 2}, "env_timeout_s": 0.2}, 2, None),
        ({"env_id": "test:Broken-v0", "seed": 0}, 0, 2),
    ],
)
def test_a_failing_env_costs_its_own_episode(label: dict[str, Any], turns: int, tokens: int | None) -> None:
    async def both() -> Any:
        executor = GemAgentExecutor()
        params = SamplingParams(max_tokens=24, logprobs=1)
        good = {"env_id": GUESS, "env_kwargs": {"max_turns": 2}, "seed": 1}
        return await asyncio.gather(
            *(executor.execute("", row, params, 512, TOKENIZER, Engine("\\boxed{99}")) for row in (label, good))
        )

    failed, played = asyncio.run(both())
    assert failed["extra_logs"]["gem/failed"] == 1.0
    assert failed["extra_logs"]["gem/turns"] == turns
    assert failed["action_ranges"] == []
    assert failed["gem"]["record"].episode.masked
    assert len(failed["rollout_log_probs"]) == len(failed["observation_tokens"])
    if tokens is not None:
        assert len(failed["observation_tokens"]) == tokens
    assert played["extra_logs"]["gem/failed"] == 0.0
    assert len(played["action_ranges"]) == 2


def test_an_unknown_env_and_a_broken_engine_end_the_run() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        run(Engine("x"), {"env_id": "game:GuessTheNumbr-v0"})

    class Dead:
        async def generate(self, *a: Any) -> Any:
            raise RuntimeError("the engine died")

    with pytest.raises(RuntimeError, match="the engine died"):
        run(Dead())  # type: ignore[arg-type]


def test_a_rebuilt_context_gives_a_sequence_a_turn() -> None:
    out = run(Engine("\\boxed{99}"), context="rebuild", wrappers="concat_with_action")
    sequences = [out, *out["gem"]["more"]]
    assert [len(s["action_ranges"]) for s in sequences] == [1, 1, 1]
    assert [s["gem"]["record"].turns[0][0] for s in sequences] == [0, 1, 2]
    assert [s["gem"]["record"].last for s in sequences] == [False, False, True]
    assert len({s["gem"]["record"].episode.episode_id for s in sequences}) == 1


def test_a_template_that_rewrites_history_starts_new_sequences_unless_told_not_to() -> None:
    answer = "<think>\nhm\n</think>\n\n\\boxed{99}"
    TOKENIZER.chat_template = DROPS_REASONING
    try:
        assert len(run(Engine(answer), max_tokens=80)["gem"]["more"]) == 2
        assert run(Engine(answer), max_tokens=80, history="append")["gem"]["more"] == []
    finally:
        TOKENIZER.chat_template = QWEN_LIKE


def test_openrlhf_loads_the_agent_file() -> None:
    from gem_openrlhf.launch import AGENT
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    assert isinstance(_load_agent_executor(str(AGENT)), GemAgentExecutor)

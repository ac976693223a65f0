"""``GemAgentLoop.run`` against a scripted server: sticky requests, interrupted generations, limits, failing envs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from gem_verl._compat import agent_loop_kwargs
from gem_verl.agent_loop import GemAgentLoop
from gem_verl.settings import VALIDATION_SEED, GemSettings
from omegaconf import OmegaConf
from support import QWEN_LIKE, build_tokenizer

pytestmark = pytest.mark.l2

TOKENIZER = build_tokenizer(QWEN_LIKE)
EOS = TOKENIZER.eos_token_id
GEM: dict[str, Any] = {"env_id": "game:GuessTheNumber-v0", "env_kwargs": {"max_turns": 3}, "max_tokens_per_turn": 24}


class Server:
    """Answers every prompt with the same text, at most ``piece`` tokens a call (an abort cuts the rest)."""

    def __init__(self, text: str, piece: int | None = None, abort_reason: str = "aborted") -> None:
        self.answer = [*TOKENIZER.encode(text, add_special_tokens=False), EOS]
        self.piece, self.abort_reason = piece, abort_reason
        self.calls: list[dict[str, Any]] = []
        self.given: list[int] = []

    async def generate(self, request_id: str, **kwargs: Any) -> Any:
        self.calls.append({"request_id": request_id, **kwargs})
        left = self.answer[len(self.given) :]
        tokens = left[: self.piece][: kwargs["sampling_params"]["max_tokens"]]
        self.given += tokens
        done = len(self.given) == len(self.answer)
        if done or self.piece is None:
            self.given = []
        step = len(self.calls)
        return SimpleNamespace(
            token_ids=tokens,
            log_probs=[-0.5] * len(tokens),
            stop_reason="completed" if done or self.piece is None else self.abort_reason,
            extra_fields={"min_global_steps": step, "max_global_steps": step},
        )


def run(server: Server, gem: dict[str, Any] | None = None, row: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    config = OmegaConf.create(
        {
            "data": {"gem": {**GEM, **(gem or {})}, "continuous_token": {"enable": False}},
            "actor_rollout_ref": {"rollout": {"prompt_length": 512, "response_length": 1024}},
            "algorithm": {"gamma": 0.9, "adv_estimator": "gem_rebn"},
        }
    )
    loop = GemAgentLoop(
        SimpleNamespace(config=config),
        server,
        TOKENIZER,
        None,
        None,
        SimpleNamespace(config=config.data),
        **agent_loop_kwargs({}),
    )
    row = {"uid": "u", "session_id": 1, "index": 7, "data_source": "d", "global_steps": 2, **(row or {})}
    outputs = asyncio.run(loop.run({"temperature": 1.0}, **row))
    return [o.as_dict() for o in outputs]


@pytest.mark.parametrize("reason", ["aborted", "abort"])
def test_an_interrupted_generation_is_resumed_where_it_stopped(reason: str) -> None:
    whole, pieces = Server("I say \\boxed{99}"), Server("I say \\boxed{99}", piece=3, abort_reason=reason)
    (expected,), (resumed,) = run(whole), run(pieces)
    for field in ("prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs"):
        assert resumed[field].tolist() == expected[field].tolist(), field
    assert len(pieces.calls) > len(whole.calls)
    first, second = pieces.calls[:2]
    assert second["prompt_ids"] == [*first["prompt_ids"], *pieces.answer[:3]]
    assert second["sampling_params"]["max_tokens"] == first["sampling_params"]["max_tokens"] - 3
    # verl's staleness control sees the oldest and the newest weights that an episode was sampled from.
    assert resumed["extra_fields"]["min_global_steps"] == 1
    assert resumed["extra_fields"]["max_global_steps"] == len(pieces.calls)


def test_one_request_id_for_a_whole_episode_and_another_for_the_next() -> None:
    server = Server("\\boxed{99}")
    run(server)
    run(server, row={"session_id": 2})
    ids = [c["request_id"] for c in server.calls]
    assert len(server.calls) == 6
    assert len(set(ids[:3])) == len(set(ids[3:])) == 1
    assert ids[0] != ids[3]


def test_sessions_of_one_row_play_the_same_seed() -> None:
    def prompts(row: dict[str, Any]) -> list[int]:
        env = {"env_id": "game:GuessTheNumber-v0-random", "env_kwargs": {}}
        return run(Server("\\boxed{1}"), gem=env, row=row)[0]["prompts"].tolist()

    assert prompts({"session_id": 0}) == prompts({"session_id": 1})
    assert len({tuple(prompts({"index": i})) for i in range(12)}) > 3


def test_rows_of_any_dataset_get_seeds_and_validation_other_ones() -> None:
    from gem_verl.rollout_worker import give_seeds
    from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

    settings = GemSettings(env_id="game:GuessTheNumber-v0", seed=5)
    rows = get_tensordict({"index": [0, 1, 4], "uid": ["a", "b", "c"]})
    give_seeds(rows, settings)
    assert list(rows["env_seed"]) == [5, 6, 9]
    held_out = get_tensordict({"index": [0, 1], "uid": ["a", "b"]})
    assign_non_tensor_data(held_out, "validate", True)
    give_seeds(held_out, settings)
    assert list(held_out["env_seed"]) == [VALIDATION_SEED + 5, VALIDATION_SEED + 6]
    named = get_tensordict({"index": [0], "env_seed": [42]})
    give_seeds(named, settings)
    assert list(named["env_seed"]) == [42]


def test_a_row_names_its_own_env_and_seed() -> None:
    row = {"env_id": "game:Hangman-v0-easy", "env_kwargs": '{"max_turns": 2}', "env_seed": 3}
    (made,) = run(Server("\\boxed{a}"), row=row)
    assert made["extra_fields"]["gem_env_id"] == "game:Hangman-v0-easy"
    assert made["extra_fields"]["reward_extra_info"]["turns"] == 2.0


def test_an_env_that_fails_gives_a_masked_row_and_no_error() -> None:
    import flaky_envs  # noqa: F401

    for seed, turns in ((0, 0), (1, 1)):  # the reset fails; the second step fails
        rows = run(Server("\\boxed{1}"), row={"env_id": "test:Flaky-v0", "env_kwargs": {}, "env_seed": seed})
        info = rows[-1]["extra_fields"]["reward_extra_info"]
        assert info["stop_env_error"] == 1.0
        assert info["turns"] >= turns
        assert sum(int(r["response_mask"].sum()) for r in rows) == 0


def test_a_rebuilt_context_gives_one_row_a_turn() -> None:
    rows = run(Server("\\boxed{99}"), gem={"context": "rebuild", "wrappers": "concat_with_action"})
    assert len(rows) == 3
    assert all(int(r["response_mask"].sum()) == len(r["responses"]) for r in rows)


def test_an_answer_that_fills_its_turn_is_cut() -> None:
    server = Server("word " * 60)
    (row,) = run(server, gem={"max_tokens_per_turn": 5})
    assert server.calls[0]["sampling_params"]["max_tokens"] == 5
    assert int(row["response_mask"].sum()) == 5 * len(server.calls)

"""TRL's own trainer on an environment: what it is given, what it learns from, and what it must not."""

from __future__ import annotations

import copy
import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import gem_trl
import torch
from gem_trl import GemConfig, GemGRPOTrainer, environment_factory
from gem_trl import _compat as compat
from gem_trl.logps import sampled_logps
from gem_trl.rollouts import HELD_OUT_SEED, VLLMPolicy, play, rows_of, training_seed
from support import DROPS_REASONING

import gem_core as gem
from gem_core.advantages import estimate_episodes
from gem_core.episode import Episode, StopReason
from gem_core.policies import Sampling, TransformersPolicy
from gem_core.run_folder import RunFolder, read_jsonl
from gem_core.session import EpisodeSession, Generation, Prompt
from gem_core.tiny import build_tiny, warm_start

ENV = "game:GuessTheNumber-v0"


@pytest.fixture(scope="module")
def base() -> tuple[Any, Any]:
    torch.set_num_threads(1)  # many threads only wait for each other at this size
    model, tokenizer = build_tiny(seed=0, hidden_size=32, num_layers=1, num_heads=1)
    warm_start(model, tokenizer, ENV, steps=120, episodes_per_step=8, warmup_steps=10, learning_rate=1e-2)
    return model, tokenizer


def config(path: Path, **changes: Any) -> GemConfig:
    values: dict[str, Any] = {
        "output_dir": str(path),
        "env_id": ENV,
        "env_kwargs": {"max_turns": 4},
        "max_tokens_per_turn": 5,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "gamma": 0.8,
        "eval_episodes": 6,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **changes,
    }
    return GemConfig(**values)


class Watching(GemGRPOTrainer):
    """Keeps what TRL's loss is given, and its gradient at every token."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        self.batches: list[list[Episode]] = []
        self.scored: list[torch.Tensor] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self.batches.append(list(self._gem_episodes))
        self.seen.append({**output, "rows": list(self._gem_rows)})
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if result[0].requires_grad:
            result[0].retain_grad()
            self.scored.append(result[0])
        return result


def trainer_of(base: tuple[Any, Any], path: Path, kind: Any = Watching, **changes: Any) -> Any:
    extra = {k: changes.pop(k) for k in ("make_env", "renderer", "run_folder") if k in changes}
    model, tokenizer = copy.deepcopy(base[0]), base[1]
    return kind(model, config(path, **changes), tokenizer, **extra)


# -- what the loss is given ----------------------------------------------------------------------------------------


@pytest.mark.l2
@pytest.mark.parametrize("advantage", ["rebn", "reinforce", "grpo", "dr_grpo", "rloo"])
def test_each_sampled_token_gets_its_turns_advantage(base: tuple[Any, Any], tmp_path: Path, advantage: str) -> None:
    trainer = trainer_of(base, tmp_path, advantage=advantage)
    trainer.train()
    (seen,), (episodes,) = trainer.seen, trainer.batches
    assert seen["advantages"].shape == seen["completion_ids"].shape == seen["tool_mask"].shape
    expected = estimate_episodes(advantage, episodes, gamma=0.8)
    for row, mask, given, ids in zip(
        seen["rows"],
        seen["tool_mask"] * seen["completion_mask"],
        seen["advantages"],
        seen["completion_ids"],
        strict=True,
    ):
        n = len(row.completion_ids)
        assert ids[:n].tolist() == row.sequence.response_ids
        assert mask[:n].tolist() == row.sequence.response_mask
        assert not mask[n:].any()
        want = row.sequence.spread(expected[row.episode].tolist())
        assert torch.equal(given[:n], torch.tensor(want))
        assert torch.all(given[mask == 0] == 0)
    group = [e.group_id for e in episodes]
    seeds = [e.seed for e in episodes]
    assert group == [group[0]] * 4 + [group[4]] * 4
    if advantage in ("grpo", "dr_grpo", "rloo"):
        assert seeds == [seeds[0]] * 4 + [seeds[4]] * 4
    else:
        assert len(set(seeds)) == 8
    if advantage == "rebn":
        values = np.concatenate(expected)
        assert values.mean() == pytest.approx(0, abs=1e-9)
        assert values.std() == pytest.approx(1, abs=1e-6)


@pytest.mark.l3
def test_the_loss_on_environment_tokens_is_exactly_zero(base: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = trainer_of(base, tmp_path, max_steps=1)
    trainer.train()
    (scored,) = trainer.scored
    assert scored.grad is not None
    mask = trainer._gem_mask
    assert torch.all(scored.grad[mask == 0] == 0)
    assert torch.all(scored.grad[mask == 1] != 0)
    # And an absurd advantage there changes nothing, so no term of the loss touches those tokens.
    inputs = dict(trainer._buffered_inputs[1])
    loss = trainer._compute_loss(trainer.model, inputs)
    outside = inputs["completion_mask"] * inputs["tool_mask"] == 0
    inputs["advantages"] = inputs["advantages"].masked_fill(outside, 1e9)
    assert torch.equal(trainer._compute_loss(trainer.model, inputs), loss)


@pytest.mark.l2
@pytest.mark.parametrize("sampled_only", [True, False])
def test_rollout_log_probabilities_equal_the_training_passes(
    base: tuple[Any, Any], tmp_path: Path, sampled_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first update, with the sampled-tokens pass of CPUs and with TRL's own."""
    monkeypatch.setattr(GemGRPOTrainer, "_gem_sampled_only", lambda self, kw: sampled_only)
    trainer = trainer_of(base, tmp_path, max_steps=1, temperature=0.8)
    trainer.train()
    (seen,) = trainer.seen
    mask = (seen["tool_mask"] * seen["completion_mask"]).bool()
    difference = (seen["old_per_token_logps"] - seen["sampling_per_token_logps"])[mask].abs()
    assert mask.sum() > 50
    assert float(difference.max()) < 1e-4
    assert float(seen["sampling_per_token_logps"][~mask].abs().max()) == 0.0


def test_scoring_sampled_tokens_only_changes_no_gradient(base: tuple[Any, Any]) -> None:
    model = copy.deepcopy(base[0])
    generator = torch.Generator().manual_seed(0)
    rows, prompt, width = 6, 5, 17
    ids = torch.randint(6, 300, (rows, prompt + width), generator=generator)
    attention = torch.ones_like(ids)
    mask = (torch.rand((rows, width), generator=generator) < 0.4).long()
    for i in range(rows):
        attention[i, : i % 4], attention[i, prompt + width - 2 * i :] = 0, 0
        mask[i, width - 2 * i :] = 0
    mask[2] = 0  # a row that trains nothing
    weights = torch.rand((rows, width), generator=generator)

    def gradients(logps: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        (logps * weights * mask).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    logps, entropies = sampled_logps(model, ids, attention, mask, 0.7, rows_at_once=4)
    full = (model(input_ids=ids, attention_mask=attention).logits / 0.7).log_softmax(-1)[:, prompt - 1 : -1]
    expected = full.gather(-1, ids[:, prompt:, None])[..., 0]
    assert torch.allclose(logps, expected * mask, atol=1e-5)
    assert torch.allclose(entropies, -(full.exp() * full).sum(-1) * mask, atol=1e-4)
    for a, b in zip(gradients(logps), gradients(expected), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    nothing, _ = sampled_logps(model, ids, attention, torch.zeros_like(mask), 1.0)
    nothing.sum().backward()  # other ranks wait for the gradient, be it zero
    assert not nothing.any()


# -- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.l3
def test_the_same_run_twice_is_the_same_and_leaves_its_record(base: tuple[Any, Any], tmp_path: Path) -> None:
    records = []
    for name in ("a", "b"):
        run = RunFolder(tmp_path / name, {"name": name}, tensorboard=False)
        trainer = trainer_of(base, tmp_path / name, max_steps=4, run_folder=run, num_iterations=2, kl_stop=0.05)
        before = trainer.evaluate()
        trainer.train()
        trainer.evaluate()
        rows = read_jsonl(run.metrics_path)
        records.append([{k: v for k, v in r.items() if k != "wall_s"} for r in rows])
        assert [(r["step"], r["split"]) for r in rows] == [(0, "eval"), (0, "train"), (4, "eval")]
        assert before["eval_success"] == rows[0]["success"]
        assert rows[0]["episodes"] == 6
        episodes = read_jsonl(run.episodes_path)
        assert {r["split"] for r in episodes} == {"train", "eval"}
        for r in episodes:
            assert len(r["tokens"]) == len(r["episode"]["turns"])
    assert records[0] == records[1]


@pytest.mark.l3
def test_a_resumed_run_goes_on_with_the_same_games(base: tuple[Any, Any], tmp_path: Path) -> None:
    changes = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_only_model": False}
    whole = trainer_of(base, tmp_path / "run", **changes)
    whole.train()
    again = trainer_of(base, tmp_path / "run", **changes)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    played, resumed = ([[e.seed for e in b] for b in t.batches] for t in (whole, again))
    assert len(played) == 3
    assert resumed == played[1:]
    assert len({s for b in played for s in b}) == 24
    tokens, resumed_tokens = ([[t.response_ids for e in b for t in e.turns] for b in t.batches] for t in (whole, again))
    assert resumed_tokens == tokens[1:]
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_training_seeds_never_meet_held_out_ones(base: tuple[Any, Any], tmp_path: Path) -> None:
    seeds = {training_seed(0, step, 0, i) for step in range(50) for i in range(8)}
    assert len(seeds) == 400
    assert max(seeds) < HELD_OUT_SEED
    trainer = trainer_of(base, tmp_path)
    held_out = trainer.play_held_out(5)
    assert [e.seed for e in held_out] == [HELD_OUT_SEED + i for i in range(5)]
    assert [e.total_reward for e in trainer.play_held_out(5)] == [e.total_reward for e in held_out]  # greedy


@pytest.mark.l3
def test_updates_stop_once_the_policy_has_moved_far_enough(base: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = trainer_of(base, tmp_path, max_steps=8, num_iterations=4, kl_stop=1e-9, learning_rate=1e-2)
    weights: list[torch.Tensor] = []
    step = trainer.training_step

    def recording(*args: Any, **kwargs: Any) -> Any:
        weights.append(next(trainer.model.parameters()).detach().clone())
        return step(*args, **kwargs)

    trainer.training_step = recording
    trainer.train()
    moved = [not torch.equal(a, b) for a, b in itertools.pairwise(weights)]
    assert moved[0]  # the first update of a batch has no distance yet
    assert not any(moved[1:])  # neither later passes over it nor AdamW's momentum


@pytest.mark.l3
@pytest.mark.timeout(600)  # imports alone take many seconds on a busy machine
def test_the_example_leaves_a_run_folder_with_a_report(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "train_trl_rebn.py"
    options = ["--no_warm_start", "--iterations", "2", "--episodes", "16", "--eval_episodes", "8"]
    command = [sys.executable, str(script), *options, "--output_dir", str(tmp_path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "greedy success on 8 held-out seeds: 0.000 before training" in done.stdout
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [(r["step"], r["split"]) for r in rows] == [(0, "eval"), (0, "train"), (8, "train"), (16, "eval")]
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")[:2000]
    assert (tmp_path / "model" / "model.safetensors").exists()


# -- faults, limits, contexts --------------------------------------------------------------------------------------


class Faulty(gem.Env):
    """The third episode's environment breaks; the sixth cannot start."""

    count = 0

    def __init__(self, inner: gem.Env) -> None:
        self.inner = inner
        self.number = Faulty.count
        Faulty.count += 1

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if self.number == 5:
            raise OSError("no disk")
        return self.inner.reset(seed=seed)

    def step(self, action: str) -> Any:
        if self.number == 2:
            raise OSError("broken")
        return self.inner.step(action)


@pytest.mark.l2
@pytest.mark.parametrize("keep_failed", [False, True])
def test_episodes_that_a_fault_ended_are_masked_unless_kept(
    base: tuple[Any, Any], tmp_path: Path, keep_failed: bool
) -> None:
    Faulty.count = 0
    trainer = trainer_of(base, tmp_path, make_env=lambda: Faulty(gem.make(ENV, max_turns=4)), keep_failed=keep_failed)
    trainer.train()
    (seen,), (episodes,) = trainer.seen, trainer.batches
    assert [e.stop_reason is StopReason.ENV_ERROR for e in episodes] == [i in (2, 5) for i in range(8)]
    sampled = (seen["tool_mask"] * seen["completion_mask"]).sum(1).tolist()
    assert sampled[5] == 0
    assert (sampled[2] > 0) == keep_failed
    assert bool(seen["advantages"][2].any()) == keep_failed
    assert all(n > 0 for i, n in enumerate(sampled) if i not in (2, 5))
    # Each row's advantages come from statistics over the kept episodes alone.
    expected = estimate_episodes("rebn", episodes, gamma=0.8, keep_failed=keep_failed)
    for row, given in zip(seen["rows"], seen["advantages"], strict=True):
        if row.sequence is not None:
            want = torch.tensor(row.sequence.spread(expected[row.episode].tolist()))
            assert torch.equal(given[: len(want)], want)
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])


@pytest.mark.l2
def test_truncated_episodes_are_masked_on_request(base: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = trainer_of(base, tmp_path, mask_truncated=True, env_kwargs={"max_turns": 2})
    trainer.train()
    (seen,), (episodes,) = trainer.seen, trainer.batches
    assert any(e.truncated for e in episodes)
    for e, mask, advantages in zip(
        episodes, seen["tool_mask"] * seen["completion_mask"], seen["advantages"], strict=True
    ):
        if e.truncated:
            assert not mask.any()
            assert not advantages.any()
        else:
            assert mask.any()


@pytest.mark.l2
def test_a_rebuilt_context_becomes_one_row_a_turn(base: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = trainer_of(base, tmp_path, context="rebuild", env_kwargs={"max_turns": 3})
    trainer.train()
    (seen,), (episodes,) = trainer.seen, trainer.batches
    turns = sum(len(e.turns) for e in episodes)
    rows = [r for r in seen["rows"] if r.sequence is not None]
    assert len(rows) == turns
    assert len(seen["rows"]) == seen["completion_ids"].shape[0] == turns + turns % 2
    per_turn = estimate_episodes("rebn", episodes, gamma=0.8)
    for i, row in enumerate(rows):
        (turn,) = row.sequence.turns
        sampled = seen["advantages"][i][: len(row.completion_ids)]
        assert torch.all(sampled == torch.tensor(float(per_turn[row.episode][turn])))
    mask = (seen["tool_mask"] * seen["completion_mask"]).bool()
    assert float((seen["old_per_token_logps"] - seen["sampling_per_token_logps"])[mask].abs().max()) < 1e-4


@pytest.mark.l2
def test_a_history_that_is_rewritten_becomes_several_rows() -> None:
    from support import ScriptEnv, build_tokenizer

    from gem_core.chat import ChatRenderer

    tokenizer = build_tokenizer(DROPS_REASONING)
    env = ScriptEnv([("more", 0.5, False, False, {}), ("end", 1.0, True, False, {})])
    session = EpisodeSession(env, ChatRenderer(tokenizer))
    session.start()
    for text in ("<think>\nhm\n</think>\n\nfirst", "second"):
        ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
        session.submit(Generation(ids, [-0.1] * len(ids)))
    rows = rows_of([session.episode, Episode("none", stop_reason=StopReason.ENV_ERROR)], [True, False], 9)
    assert [r.episode for r in rows] == [0, 0, -1]
    assert [r.sequence.turns for r in rows[:2]] == [[0], [1]]  # type: ignore[union-attr]
    assert rows[2].completion_ids == [9]
    assert rows[2].mask == [0]


@pytest.mark.l2
def test_environments_beside_the_trainer_play_the_same_episodes(base: tuple[Any, Any], tmp_path: Path) -> None:
    inside, apart = (trainer_of(base, tmp_path, executor=e).play_held_out(4, greedy=False) for e in (None, "thread"))
    for a, b in zip(inside, apart, strict=True):
        assert (a.seed, a.rewards) == (b.seed, b.rewards)
        assert [t.response_ids for t in a.turns] == [t.response_ids for t in b.turns]


# -- engines -------------------------------------------------------------------------------------------------------


class FakeEngine:
    """Answers as TRL's ``VLLMGeneration`` does."""

    temperature, max_completion_length = 0.9, 77

    def __init__(self, nested: bool) -> None:
        self.nested = nested
        self.calls: list[Any] = []

    def generate(self, prompts: Any, images: Any, num_generations: int) -> Any:
        self.calls.append((self.temperature, self.max_completion_length, prompts, num_generations))
        ids = [[5, 6, 7, 1] for _ in prompts]
        lps = [
            [[-0.5], [-0.25], [None], [-0.1]] if self.nested and i else [-0.5, -0.25, -1.0, -0.1]
            for i in range(len(ids))
        ]
        return prompts, ids, lps, None


@pytest.mark.l2
def test_the_vllm_policy_translates_and_cuts() -> None:
    engine = FakeEngine(nested=True)
    how = Sampling(temperature=0.6)
    policy = VLLMPolicy(engine, max_new_tokens=6, stop_token_ids=[1], sampling=how)
    first, second = policy.generate([Prompt([2], [], 2, "a", 0), Prompt([3, 4], [], None, "b", 0)])
    assert (first.token_ids, first.logprobs, first.finish_reason) == ([5, 6], [-0.5, -0.25], "length")
    assert (second.token_ids, second.logprobs, second.finish_reason) == ([5, 6, 7, 1], None, "stop")
    assert engine.calls == [(0.6, 6, [[2], [3, 4]], 1)]
    greedy = VLLMPolicy(engine, max_new_tokens=6, stop_token_ids=[1], sampling=Sampling(greedy=True))
    greedy.generate([Prompt([2], [], None, "a", 0)])
    assert engine.calls[-1][0] == 0.0
    assert (engine.temperature, engine.max_completion_length) == (0.9, 77)


@pytest.mark.l2
def test_a_collective_engine_is_called_alike_on_every_process(base: tuple[Any, Any]) -> None:
    """Two processes in turn: one whose episodes are over early still makes the other's number of calls."""
    from support import ScriptEnv

    from gem_core.chat import ChatRenderer

    class Counting(TransformersPolicy):
        def generate(self, prompts: list[Prompt]) -> list[Generation]:
            sizes.append(len(prompts))
            return super().generate(prompts)

    def sessions(lengths: list[int]) -> list[EpisodeSession]:
        script = [("more", 0.0, False, False, {})] * 9
        return [
            EpisodeSession(ScriptEnv([*script[: n - 1], ("end", 1.0, True, False, {})]), ChatRenderer(base[1]))
            for n in lengths
        ]

    others = iter([2, 2, 1, 1, 0])
    sizes: list[int] = []
    mine = sessions([1])
    play(mine, Counting(*base, max_new_tokens=3), lambda n: max(n, next(others)))
    assert sizes == [2, 2, 1, 1]
    assert len(mine[0].episode.turns) == 1


TWO_PROCESSES = """
import copy, sys, torch
sys.path[:0] = {paths!r}
from pathlib import Path
import test_trl as t
from gem_core.tiny import build_tiny, warm_start
torch.set_num_threads(1)
model, tokenizer = build_tiny(seed=0, hidden_size=32, num_layers=1, num_heads=1)
warm_start(model, tokenizer, t.ENV, steps=120, episodes_per_step=8, warmup_steps=10, learning_rate=1e-2)
run = t.RunFolder({out!r}, tensorboard=False)
trainer = t.trainer_of((model, tokenizer), Path({out!r}), run_folder=run, max_steps=2, kl_stop=0.5)
trainer.train()
rank = trainer.accelerator.process_index
evaluated = trainer.evaluate()
(seen,), (episodes,) = trainer.seen, trainer.batches
mask = (seen["tool_mask"] * seen["completion_mask"]).bool()
firsts = [a for r, a in zip(seen["rows"], trainer._advantages(episodes)) for a in a]
weights = [p.detach() for p in trainer.model.parameters()]
kept = dict(seeds=[e.seed for e in episodes], advantages=firsts, weights=weights, eval=evaluated)
torch.save(kept, {out!r} + f"/rank{{rank}}.pt")
"""


@pytest.mark.l3
@pytest.mark.timeout(600)
def test_two_processes_share_statistics_and_gradients(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    paths = [str(root / "tests"), str(root / "tests" / "adapters"), str(root / "adapters"), str(root)]
    script = tmp_path / "run.py"
    script.write_text(TWO_PROCESSES.format(paths=paths, out=str(tmp_path)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [torch.load(tmp_path / f"rank{r}.pt", weights_only=False) for r in range(2)]
    assert len({s for r in ranks for s in r["seeds"]}) == 16
    values = np.concatenate([r["advantages"] for r in ranks])
    assert values.mean() == pytest.approx(0, abs=1e-9)
    assert values.std() == pytest.approx(1, abs=1e-6)
    assert abs(np.mean(ranks[0]["advantages"])) > 1e-6  # neither rank is centred by itself
    for a, b in zip(ranks[0]["weights"], ranks[1]["weights"], strict=True):
        assert torch.equal(a, b)
    assert ranks[0]["eval"] == ranks[1]["eval"]
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [(r["split"], r["episodes"]) for r in rows] == [("train", 16), ("eval", 6)]


# -- tools ---------------------------------------------------------------------------------------------------------


def test_a_tool_environment_plays_an_episode() -> None:
    env = environment_factory(ENV, {"max_turns": 5})()
    text = env.reset(seed=3, prompt="ignored")
    assert "Guess 1 of 5" in text
    low, high = 1, 20
    for _ in range(5):
        answer = env.act(f"\\boxed{{{(low + high) // 2}}}")
        if "higher than" in answer:
            low = (low + high) // 2 + 1
        else:
            high = (low + high) // 2 - 1
        if "is right" in answer:
            break
    assert env.get_reward() == 1.0
    assert env.act("\\boxed{1}") == "The episode is over."
    env.reset(seed=3)
    assert env.get_reward() == 0.0


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["0.29.1", "2.0.0", "2.1.0rc1"])
def test_an_unsupported_version_is_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_core._versions.version", lambda name: found)
    with pytest.raises(ImportError, match=rf"trl {found} is installed"):
        compat.check_version()


def test_a_missing_trl_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("gem_core._versions.version", missing)
    with pytest.raises(ImportError, match=r"pip install 'gem-adapters\[trl\]'"):
        compat.check_version()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": "rebm"}, "advantage='rebm' is unknown"),
        ({"gamma": 1.5}, "gamma must lie in 0 to 1"),
        ({"kl_stop": 0.0}, "kl_stop must be positive"),
        ({"eval_episodes": 0}, "eval_episodes must be positive"),
        ({"advantage": "grpo", "share_seed": False}, "drop share_seed=False"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": ""}, "give args.env_id or make_env"),
        ({"env_id": "game:GuessTheNumbr-v0"}, "did you mean"),
        ({"env_kwargs": {"max_turn": 3}}, "did you mean 'max_turns'"),
        ({"max_steps": -1}, "set max_steps"),
        ({"repetition_penalty": 1.2}, "need use_vllm=True"),
    ],
)
def test_the_trainer_refuses_what_cannot_work(
    base: tuple[Any, Any], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer_of(base, tmp_path, **changes)


def test_the_main_classes_are_exported() -> None:
    assert set(gem_trl.__all__) >= {"GemGRPOTrainer", "GemConfig", "ProgressBar", "environment_factory"}

"""The real Ray actors on a CPU: OpenRLHF's vLLM engine plays episodes, its actor takes optimizer steps and sends its
weights back. About three minutes on two cores, most of it start-up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

GUESS = "game:GuessTheNumber-v0"
ROWS, SAMPLES = 8, 2
FLAGS = """
--algo.advantage.estimator gem_rebn --algo.advantage.gamma 0.9
--algo.kl.init_coef 0
--vllm.num_engines 1 --vllm.sync_backend gloo --vllm.enforce_eager --vllm.gpu_memory_utilization 0.2
--actor.num_gpus_per_node 1 --ds.zero_stage 0 --ds.attn_implementation eager
--rollout.batch_size 8 --rollout.n_samples_per_prompt 2 --rollout.micro_batch_size 4
--train.batch_size 16 --train.micro_batch_size 16
--rollout.max_new_tokens 6 --data.max_len 256
--actor.adam.lr 5e-3 --actor.lr_warmup_ratio 0 --actor.min_lr_ratio 1.0
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Parts:
    """The running actors, one batch of experiences and what the steps of the story left behind."""

    def __init__(self, folder: Path) -> None:
        import ray
        from gem_openrlhf import launch
        from gem_openrlhf.experience_maker import GemExperienceMaker
        from gem_openrlhf.samples import GemSamplesGenerator
        from openrlhf.utils import get_strategy
        from openrlhf.utils.utils import get_tokenizer

        from gem_core.tiny import build_tiny, save_tiny, warm_start

        model, tokenizer = build_tiny(0, [GUESS])
        warm_start(model, tokenizer, GUESS, {"max_turns": 4}, steps=30, episodes_per_step=16)
        path = str(save_tiny(model, tokenizer, folder / "tiny"))
        ray.init(address="local", num_cpus=8, num_gpus=2, include_dashboard=False, runtime_env={"env_vars": {}})
        sys.argv = ["launch"]
        correction = "is_correction_enable" if version("openrlhf") < "0.11.1" else "is_correction_level=token"
        out = ["--ckpt.output_dir", str(folder / "saved")]
        self.args = launch.arguments(
            [*FLAGS.split(), f"--algo.advantage.{correction}", "--actor.model_name_or_path", path, *out]
        )
        self.strategy = get_strategy(self.args)
        self.models = launch.build_models(self.args)
        ray.get(self.models["actor"].async_init_model_from_pretrained(self.strategy, path, 100, self.models["engines"]))
        self.tokenizer = get_tokenizer(path, None, "left", self.strategy)
        labels = [{"env_id": GUESS, "env_kwargs": {"max_turns": 4}, "seed": i} for i in range(ROWS)]
        loader = [([GUESS], [f"row {i}"], [json.dumps(label)], [None]) for i, label in enumerate(labels)]
        self.generator = GemSamplesGenerator(self.strategy, loader, None, self.tokenizer, self.models["engines"])
        self.maker = GemExperienceMaker(
            self.models["actor"], None, None, None, SimpleNamespace(value=0.0), self.strategy, self.tokenizer
        )
        self.samples, *_ = self.generator.generate_samples(max_len=256, max_new_tokens=6)
        self.records = [s.info["gem_record"][0] for s in self.samples]
        self.experiences = self.maker.make_experience_batch(list(self.samples))

    def actor_logprobs(self) -> list[torch.Tensor]:
        """The actor's, of every token of the fixed batch; one tensor an experience."""
        import ray

        fields = {
            "sequences": [e.sequences for e in self.experiences],
            "action_mask": [torch.ones_like(e.action_mask) for e in self.experiences],
            "attention_mask": [e.attention_mask for e in self.experiences],
        }
        refs = self.models["actor"].async_run_method_batch(method_name="forward", **fields)
        return [x.float() for chunk in ray.get(refs) for x in chunk]

    def engine_logprobs(self) -> list[torch.Tensor]:
        """The engine's, in the same shape (0.0 on padding)."""
        import ray
        from vllm import SamplingParams

        (engine,) = self.models["engines"]
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        out = []
        for e in self.experiences:
            made = torch.zeros(e.action_mask.shape)
            for i, (ids, mask) in enumerate(zip(e.sequences, e.attention_mask, strict=True)):
                tokens = ids[: int(mask.sum())].tolist()
                found = ray.get(engine.generate.remote(tokens, params)).prompt_logprobs
                for k, token in enumerate(tokens[1:]):
                    made[i, k] = found[k + 1][token].logprob
            out.append(made)
        return out

    def float32_logprobs(self) -> list[torch.Tensor]:
        """Of the actor's weights as it saves them, computed by transformers in float32."""
        import ray
        from transformers import AutoModelForCausalLM

        ray.get(self.models["actor"].async_save_model())
        model = AutoModelForCausalLM.from_pretrained(self.args.ckpt.output_dir, dtype=torch.float32)
        out = []
        for e in self.experiences:
            with torch.no_grad():
                logits = model(e.sequences, attention_mask=e.attention_mask).logits
            logprobs = logits[:, :-1].log_softmax(-1)
            out.append(logprobs.gather(-1, e.sequences[:, 1:, None]).squeeze(-1))
        return out

    def gap(self, one: list[torch.Tensor], other: list[torch.Tensor]) -> torch.Tensor:
        """Differences of the tokens' log probabilities."""
        pairs = zip(one, other, self.experiences, strict=True)
        return torch.cat([(a - b).abs()[e.attention_mask[:, 1:].bool()] for a, b, e in pairs])

    def loss(self) -> float:
        """OpenRLHF's policy loss of the fixed batch under the actor's weights of now."""
        from openrlhf.models import PolicyLoss

        loss = PolicyLoss()
        total, tokens = 0.0, 0.0
        for new, e in zip(self.actor_logprobs(), self.experiences, strict=True):
            count = float(e.action_mask.sum())
            value = loss(new, e.action_log_probs.float(), e.advantages, action_mask=e.action_mask)[0]
            total, tokens = total + float(value) * count, tokens + count
        return total / tokens

    def step(self) -> dict[str, float]:
        import ray

        group = self.models["actor"]
        copies = list(self.experiences)
        ray.get(group.async_run_method_batch(method_name="append", experience=copies))
        (status,) = ray.get(group.async_run_method(method_name="fit", kl_ctl=0.0))
        return dict(status)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    import ray

    yield Parts(tmp_path_factory.mktemp("openrlhf"))
    ray.shutdown()


@pytest.mark.l2
def test_the_engines_actor_loads_the_agent_file_and_plays_real_episodes(parts: Parts) -> None:
    assert len(parts.samples) == ROWS * SAMPLES
    assert len({r.episode.group_id for r in parts.records}) == ROWS
    assert len({r.episode.episode_id for r in parts.records}) == ROWS * SAMPLES
    for sample, record in zip(parts.samples, parts.records, strict=True):
        assert not record.episode.stop_reason.failed
        assert len(record.turns) == len(record.episode.rewards) > 0
        covered = torch.zeros(sample.sequences.size(1))
        for _, first, end in record.turns:
            covered[first:end] = 1
            assert 0 < end - first <= 6
        assert torch.equal(covered[1:], sample.action_mask[0].float())
        assert torch.equal(sample.rollout_log_probs[0] != 0.0, sample.action_mask[0].bool())
        assert float(sample.rewards) == pytest.approx(record.episode.total_reward, abs=1e-6)


@pytest.mark.l2
def test_the_experience_maker_computes_rebn(parts: Parts) -> None:
    from gem_core.advantages import rebn

    rewards = [list(r.episode.rewards) for r in parts.records]
    expected = rebn(rewards, gamma=0.9)
    returns = [[sum(0.9**k * x for k, x in enumerate(r[t:])) for t in range(len(r))] for r in rewards]
    flat = torch.tensor([g for row in returns for g in row], dtype=torch.float64)
    mean, std = flat.mean(), flat.std(unbiased=False)
    rows = [(m, a) for e in parts.experiences for m, a in zip(e.action_mask, e.advantages, strict=True)]
    for (_, got), record, reference, brute in zip(rows, parts.records, expected, returns, strict=True):
        for turn, first, end in record.turns:
            assert got[first - 1 : end - 1].tolist() == pytest.approx([reference[turn]] * (end - first), abs=1e-5)
            assert float(got[first - 1]) == pytest.approx(float((brute[turn] - mean) / std), abs=1e-4)
    assert all(not a[~m.bool()].any() for m, a in rows)


@pytest.mark.l3
def test_optimizer_steps_lower_the_loss_and_the_engine_follows_the_actor(parts: Parts) -> None:
    import ray

    fresh = parts.gap(parts.engine_logprobs(), parts.actor_logprobs())
    first = parts.loss()
    status = parts.step()
    assert status["actor_grad_norm"] > 0.0
    second = parts.loss()
    stale = parts.gap(parts.engine_logprobs(), parts.actor_logprobs())
    ray.get(parts.models["actor"].async_run_method(method_name="broadcast_to_vllm"))
    updated = parts.gap(parts.engine_logprobs(), parts.actor_logprobs())
    # What bfloat16 makes of the same weights, in the actor alone.
    rounding = parts.gap(parts.float32_logprobs(), parts.actor_logprobs())
    print(f"\nloss {first:.4f} -> {second:.4f}")
    for name, gap in (("fresh", fresh), ("stale", stale), ("updated", updated), ("rounding", rounding)):
        print(f"{name}: mean {float(gap.mean()):.5f}, largest {float(gap.max()):.5f} of {len(gap)} tokens")
    assert second < first - 1e-3
    for gap in (fresh, updated):
        assert gap.mean() < 2 * rounding.mean()
        assert gap.max() < 3 * rounding.max()
        assert gap.mean() < 0.1 * stale.mean()

"""gem_trl's vLLM modes on a real engine: vLLM built for CPUs, colocated in the trainer and served beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.update(
    TRL_EXPERIMENTAL_SILENCE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the engine in this process
    VLLM_CPU_KVCACHE_SPACE="1",
    OMP_NUM_THREADS="1",
)

import torch
import vllm.model_executor.layers.utils as layers
from gem_trl import GemConfig, GemGRPOTrainer

from gem_core.tiny import build_tiny, load_tiny, save_tiny, warm_start


def keep_weights(layer: Any, remove_weight: bool) -> None:
    """vLLM's CPU kernels repack weights at load and empty the originals, which an update has to write to."""
    layer.cpu_linear = torch.nn.functional.linear


layers.dispatch_cpu_unquantized_gemm = keep_weights
ENV = "game:GuessTheNumber-v0"


class Watching(GemGRPOTrainer):
    """For each batch: how far the engine's log probabilities are, on average, from those of the model that is trained
    and of the model as it was at the start."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.differences: list[tuple[float, float]] = []
        self.sampled = 0
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
        attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
        width = output["completion_ids"].shape[1]
        if not self.differences:
            self.first = load_tiny(self.model.name_or_path)[0]
        mask = (output["completion_mask"] * output["tool_mask"]).bool()
        engine = torch.zeros(output["completion_ids"].shape)
        for i, row in enumerate(self._gem_rows):
            engine[i, : len(row.logprobs)] = torch.tensor(row.logprobs)
        away = []
        for model in (self.model, self.first):
            with torch.no_grad():
                logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
            logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0][:, -width:]
            away.append(float((logps - engine)[mask].abs().mean()))
        self.differences.append((away[0], away[1]))
        self.sampled += int(mask.sum())
        return output


def config(path: Path, **changes: Any) -> GemConfig:
    values: dict[str, Any] = {
        "output_dir": str(path / "run"),
        "env_id": ENV,
        "env_kwargs": {"max_turns": 4},
        "max_tokens_per_turn": 5,
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "steps_per_generation": 1,
        "num_generations": 4,
        "learning_rate": 1e-2,
        "eval_episodes": 16,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "use_vllm": True,
        "vllm_max_model_length": 512,
        "vllm_gpu_memory_utilization": 0.1,
        "vllm_enable_sleep_mode": False,
        **changes,
    }
    return GemConfig(**values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    model, tokenizer = build_tiny(seed=0)
    warm_start(model, tokenizer, ENV, steps=30, episodes_per_step=16)
    return save_tiny(model, tokenizer, tmp_path_factory.mktemp("tiny"))


@pytest.mark.l3
@pytest.mark.timeout(600)
def test_a_colocated_engine_samples_from_the_weights_that_are_trained(folder: Path, tmp_path: Path) -> None:
    trainer = Watching(str(folder), config(tmp_path, vllm_mode="colocate"))
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    moved = max(float((a - b).abs().max()) for a, b in zip(before, trainer.model.parameters(), strict=True))
    print("differences", trainer.differences, "moved", moved, "tokens", trainer.sampled)
    assert moved > 1e-3
    assert len(trainer.differences) == 3
    assert trainer.sampled > 100
    # The engine computes in bfloat16, the trainer in float32.
    assert max(now for now, _ in trainer.differences) < 0.02
    assert trainer.differences[-1][1] > 5 * trainer.differences[-1][0]  # it did get the new weights
    episodes = trainer.play_held_out(16, greedy=True)
    again = trainer.play_held_out(16, greedy=True)
    assert [[t.response_ids for t in e.turns] for e in episodes] == [[t.response_ids for t in e.turns] for e in again]

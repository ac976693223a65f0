"""TRL's ``environment_factory`` through its own GRPOTrainer, with a model that writes tool calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
import trl
from datasets import Dataset
from gem_trl import environment_factory
from trl import GRPOConfig, GRPOTrainer

from gem_core.tiny import build_tiny

CALL = '<tool_call>\n{"name": "act", "arguments": {"action": "\\\\boxed{%d}"}}\n</tool_call>'
#: Hermes-style tool calls, as Qwen models write them.
TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"


class Bisecting(GRPOTrainer):
    """Samples nothing: writes the tool calls of a player that bisects 1 to 20."""

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        written, logprobs = [], []
        for ids in prompt_ids:
            low, high = 1, 20
            text = self.processing_class.decode(ids)
            for part in text.split("The number is ")[1:]:
                direction, _, n = part.split(" ", 3)[:3]
                number = int(n.split(".")[0])
                low, high = (number + 1, high) if direction == "higher" else (low, number - 1)
            call = "done" if "is right" in text else CALL % ((low + high) // 2)
            written.append([*self.processing_class.encode(call), self.processing_class.eos_token_id])
            logprobs.append(None)
        return written, None


@pytest.mark.l3
def test_tool_calls_play_episodes_and_earn_their_rewards(tmp_path: Path) -> None:
    if not TEMPLATE.exists():
        pytest.skip("this TRL keeps its templates elsewhere")
    torch.set_num_threads(1)
    model, tokenizer = build_tiny(hidden_size=32, num_layers=1)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    model.resize_token_embeddings(len(tokenizer))
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "Play. "}], "seed": s} for s in (3, 4)])
    args = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=2048,
        max_tool_calling_iterations=5,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = Bisecting(
        model=model,
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        environment_factory=environment_factory("game:GuessTheNumber-v0"),
    )
    trainer.train()
    (log,) = [x for x in trainer.state.log_history if "reward" in x]
    assert log["reward"] == 1.0
    assert log["tools/call_frequency"] >= 2
    assert log["tools/failure_frequency"] == 0

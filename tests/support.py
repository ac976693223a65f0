"""Shared by tests: a byte-level tokenizer built on the spot, and a scripted environment."""

from __future__ import annotations

from typing import Any

import gem_core as gem

QWEN_LIKE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Drops the reasoning block of every reply that is not the last message, as reasoning models' templates do.
DROPS_REASONING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and '</think>' in m['content'] and not loop.last %}"
    "{{ m['content'].split('</think>')[-1].lstrip('\n') }}{% else %}{{ m['content'] }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: Keeps only the last two user messages: rewrites history whatever the replies are.
FORGETS = (
    "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for m in users[-2:] %}<|im_start|>user\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(template: str | None = QWEN_LIKE) -> Any:
    """A byte-level BPE tokenizer with a few hundred merges: most random id streams do not survive decode and encode."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = (
        "Guess the hidden number between 1 and 20. It is higher than that, lower than this. \\boxed{10} assistant user"
    )
    core.train_from_iterator([text] * 10, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = template
    return tokenizer


class ScriptEnv(gem.Env):
    """Plays a list of ``(observation, reward, terminated, truncated, info)`` and remembers the actions."""

    def __init__(self, steps: list[Any], first: str = "Begin.", info: dict[str, Any] | None = None) -> None:
        self.steps, self.first, self.first_info = steps, first, info or {}
        self.actions: list[str] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.actions = []
        return self.first, dict(self.first_info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        result = self.steps[len(self.actions)]
        self.actions.append(action)
        if isinstance(result, BaseException):
            raise result
        return result

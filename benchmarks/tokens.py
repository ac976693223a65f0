"""The cost of an episode's token ids and masks: appended turn by turn, beside re-tokenising each turn's conversation.

    python benchmarks/tokens.py [--record]

Ours is :class:`gem_core.session.EpisodeSession` from the first observation to the finished ``TokenSequence``. The other
side renders and tokenises the whole conversation for every turn's prompt, and once more, message by message, for the
mask of the assistant's tokens at the end, as text-based rollouts do. Both use the same byte-level BPE tokenizer and the
same texts, all different, and both are given the replies' text by the engine. CPU seconds, medians of interleaved runs.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from _table import machine, record, render

from gem_core.chat import ChatRenderer
from gem_core.session import EpisodeSession, Generation

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(text: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([text], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


#: Words of an observation and of a reply.
SIZES = {"short replies": (20, 40), "short reasoning": (20, 120)}


def texts(turns: int, seed: int, observation: int = 20, reply: int = 40) -> tuple[list[str], list[str]]:
    """Observations and replies of so many words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(600)]
    observations = [" ".join(rng.choices(words, k=observation)) for _ in range(turns + 1)]
    return observations, [" ".join(rng.choices(words, k=reply)) + f" \\boxed{{{i}}}" for i in range(turns)]


def append(renderer: ChatRenderer, observations: list[str], replies: list[str], sampled: list[list[int]]) -> int:
    session = EpisodeSession(None, renderer)
    session.begin(observations[0], {})
    last = len(sampled) - 1
    for i, ids in enumerate(sampled):
        session.act(Generation(ids, [-0.5] * len(ids), text=replies[i]))
        session.observe(observations[i + 1], 0.0, i == last, False, {})
    return sum(len(s) for s in session.episode.to_sequences())


def retokenise(tokenizer: Any, observations: list[str], replies: list[str]) -> int:
    messages: list[dict[str, str]] = []
    for observation, reply in zip(observations, replies, strict=False):
        messages.append({"role": "user", "content": observation})
        tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        messages.append({"role": "assistant", "content": reply})
    ids: list[int] = []
    mask: list[int] = []
    for message in messages:
        part = tokenizer.apply_chat_template([message], tokenize=True, return_dict=False)
        ids += part
        mask += [int(message["role"] == "assistant")] * len(part)
    return len(ids)


def timed(call: Callable[..., int], *args: Any) -> tuple[float, int]:
    begin = time.process_time()
    result = call(*args)
    return time.process_time() - begin, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    args = parser.parse_args()
    print(machine())
    tokenizer = build_tokenizer(" ".join(text for part in texts(100, 0) for text in part))
    renderer = ChatRenderer(tokenizer)  # one serves all episodes of a run
    rows = []
    for (kind, sizes), turns in itertools.product(SIZES.items(), (12, 25, 50, 100)):
        ours, theirs, length = [], [], 0
        for i in range(args.rounds):
            # New texts each round and each kind: nothing is found in a memo.
            observations, replies = texts(turns, 1000 * turns + 10 * sum(sizes) + i, *sizes)
            sampled = [[*tokenizer.encode(r, add_special_tokens=False), tokenizer.eos_token_id] for r in replies]
            seconds, length = timed(append, renderer, observations, replies, sampled)
            ours.append(seconds)
            theirs.append(timed(retokenise, tokenizer, observations, replies)[0])
        a, b = statistics.median(ours), statistics.median(theirs)
        cells = [f"{turns} turns, {kind}", f"{length:,}", f"{1e3 * a:.2f}", f"{1e6 * a / length:.2f}", f"{1e3 * b:.1f}"]
        rows.append([*cells, f"{b / a:.0f}", "40" if turns == 50 else "-"])
        print("  ".join(rows[-1]), flush=True)
    head = ["", "tokens", "appended, ms", "us a token", "re-tokenised, ms", "ratio", "wanted"]
    text = render(head, rows)
    print("\n" + text)
    if args.record:
        record("Tokens of an episode", text, "python benchmarks/tokens.py")


if __name__ == "__main__":
    main()

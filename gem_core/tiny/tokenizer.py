"""A byte-level tokenizer built from the texts of the environments it will read.

Any Unicode text survives encode and decode, since the base vocabulary is the 256 bytes. On top of them:

- the numbers 10 to 99 are one token each, as the digits are, wherever they stand;
- a phrase between two numbers (or newlines) that the environments use again and again is one token, so a turn of
  a game costs a dozen tokens and a tiny model can learn within minutes;
- what is left of the texts gets ordinary BPE merges.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

PAD, SYSTEM, USER, ASSISTANT, TOOL, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"
SPECIAL_TOKENS = (PAD, END, SYSTEM, USER, ASSISTANT, TOOL)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
#: One or two digits; or a run without digits, up to and including its newlines.
_PIECE = r"[0-9]{1,2}|[^0-9\n]+\n*|\n+"
_ACTION_OPENING = r"\boxed{"


def build_tokenizer(texts: Iterable[str] = (), *, max_phrases: int = 256, max_merges: int = 128) -> Any:
    """Builds the tokenizer; the same texts give the same tokenizer.

    Args:
        texts: What it will read, such as :func:`gem_core.tiny.corpus` collects.
        max_phrases: Most whole phrases to keep: those that save the most tokens.
        max_merges: Most merges to learn from the other pieces.

    Returns:
        A ``PreTrainedTokenizerFast`` with a chat template.
    """
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
    except ImportError as e:
        raise ImportError(f"the tiny model needs {e.name!r}: pip install 'gem-adapters[trl]'", name=e.name) from e

    def split() -> Any:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    pieces = Counter(p for text in texts for p in re.findall(_PIECE, text))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spell = {p: split().pre_tokenize_str(p)[0][0] for p in pieces}  # one printable character a byte
    merges: list[tuple[str, str]] = [(a, b) for a in "123456789" for b in "0123456789"]
    merges += [(_ACTION_OPENING[:i], _ACTION_OPENING[i]) for i in range(1, len(_ACTION_OPENING))]
    saved = {p: (n - 1) * (len(spell[p]) - 1) for p, n in pieces.items() if not p[0].isascii() or not p[0].isdigit()}
    phrases = sorted((p for p in saved if saved[p] > 0), key=lambda p: (-saved[p], p))[:max_phrases]
    rest = {spell[p]: n for p, n in pieces.items() if p not in phrases}
    merges += [m for m in _learn_merges(rest, max_merges) if m not in merges]
    vocabulary = dict.fromkeys([*alphabet, *(a + b for a, b in merges), *(spell[p] for p in phrases)])
    ids = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *vocabulary])}
    # ignore_merges: a piece that is in the vocabulary is one token, whether merges lead to it or not.
    core = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=True))
    core.pre_tokenizer = split()
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL_TOKENS))
    build: Any = PreTrainedTokenizerFast  # its constructor is not typed
    tokenizer = build(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT, TOOL],
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def number_ids(tokenizer: Any) -> list[int]:
    """The ids of the tokens ``0`` to ``99``, in that order.

    Raises:
        ValueError: the tokenizer does not have one token for each.
    """
    ids = [tokenizer.encode(str(n), add_special_tokens=False) for n in range(100)]
    for n, one in enumerate(ids):
        if len(one) != 1:
            raise ValueError(f"the tokenizer writes {n} as {len(one)} tokens; build it with build_tokenizer()")
    return [one[0] for one in ids]


def _learn_merges(counts: dict[str, int], most: int) -> list[tuple[str, str]]:
    """Byte-pair merges of pieces that occur often; ties go by the alphabet, so the result is always the same.

    Written out because the library's trainer takes texts, not counted pieces whose borders are ours.
    """
    words = [(list(piece), n) for piece, n in sorted(counts.items())]
    merges: list[tuple[str, str]] = []
    while len(merges) < most:
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, n in words:
            for pair in itertools.pairwise(symbols):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[best] < 3:
            break
        merges.append(best)
        for symbols, _ in words:
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
                i += 1
    return merges

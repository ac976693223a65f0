"""Contexts as text, for rl-square 0.0.2, whose environments get no tokens.

RL2 tokenises what the environment returns, and appends where the new state begins with the old state and the answer.
So the episode must be written with exact strings, and the borders of turns must still be recognised: here a
"token" is a character, or a whole special token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gem_core.chat import Message

#: Ids of special tokens start where Unicode ends.
_FIRST_SPECIAL = 0x110000


class TextTokenizer:
    """The part of a tokenizer that :class:`gem_core.chat.ChatRenderer` uses, over characters.

    ``text(encode(s)) == s`` for every string.

    Args:
        tokenizer: Where the chat template and the special tokens come from.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.chat_template = tokenizer.chat_template
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        found = {*tokenizer.all_special_tokens, *(str(t) for t in added if getattr(t, "special", False))}
        self.all_special_tokens = sorted((s for s in found if s), key=lambda s: (-len(s), s))
        self._ids = {s: _FIRST_SPECIAL + i for i, s in enumerate(self.all_special_tokens)}
        pattern = "|".join(map(re.escape, self.all_special_tokens))
        self._split = re.compile(f"({pattern})") if pattern else None
        #: As the real tokenizer's: the environments' wrappers and the renderer may ask.
        self.bos_token_id = self._ids.get(tokenizer.bos_token or "")
        self.eos_token_id = self._ids.get(tokenizer.eos_token or "")

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        out: list[int] = []
        for piece in self._split.split(text) if self._split else [text]:
            special = self._ids.get(piece)
            if special is None:
                out.extend(map(ord, piece))
            else:
                out.append(special)
        return out

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(
            chr(t) if t < _FIRST_SPECIAL else "" if skip_special_tokens else self.all_special_tokens[t - _FIRST_SPECIAL]
            for t in token_ids
        )

    def text(self, ids: Sequence[int]) -> str:
        """The exact text."""
        return self.decode(ids)

    def apply_chat_template(
        self, conversation: list[Message], *, tokenize: bool, add_generation_prompt: bool, **kwargs: Any
    ) -> Any:
        if tokenize:
            raise ValueError("TextTokenizer renders text only: pass tokenize=False")
        return self._tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=add_generation_prompt, **kwargs
        )

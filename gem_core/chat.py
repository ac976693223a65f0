"""Turning observations into token ids by appending, never by rendering the past again.

Re-tokenising a conversation's text does not give back the ids that were sampled (merges differ across the border of
two pieces), so the trainer would see tokens the policy never produced; see the public discussions of token-in-token-out
in RL2, verl and TRL. A renderer therefore only ever adds the ids of the chat template's own delta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Message = dict[str, str]
#: ``"template"``: follow the template, starting a new training sequence whenever it rewrites history.
#: ``"append"``: never let it rewrite, whatever it would do to earlier reasoning.
HistoryPolicy = Literal["template", "append"]

_REPLY = "gem-reply-7f3a"
_OBSERVATION = "gem-observation-7f3a"
_PROBE_ROUNDS = 16
_FRAME_PROBES = (
    "a",
    "1 2\n\n3  |4|",
    "{{ x }} {% y %} & \"q\" 'r' \\s > [t] {u}",
    "é\u2028ß 日本 /no_think",
    "x" * 3000,
)


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...


class ChatTokenizer(Tokenizer, Protocol):
    """A :class:`Tokenizer` with a chat template."""

    def apply_chat_template(
        self, conversation: list[Message], *, tokenize: bool, add_generation_prompt: bool, **kwargs: Any
    ) -> Any: ...


@dataclass(frozen=True)
class Context:
    """What comes before the next generation."""

    #: The whole prompt where ``new_sequence``, else the tokens to append to what the policy saw and sampled so far.
    ids: list[int]
    new_sequence: bool


class Renderer(Protocol):
    """Writes contexts; stateless, so one instance serves all episodes."""

    def start(self, messages: Sequence[Message]) -> list[int]:
        """The first prompt; ``messages`` ends with the first observation."""

    def extend(self, messages: Sequence[Message], observation: str, last_token: int | None) -> Context:
        """The context after a reply.

        Args:
            messages: The conversation so far, the policy's last reply included.
            observation: The environment's answer.
            last_token: The last token that was sampled, or None where none was.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled tokens, special tokens left out."""


class ChatRenderer:
    """Observations as user messages of a chat template.

    A special token's string in an observation (``<|im_end|>`` in a web page, say) is shown broken by a zero-width
    space, so that it is text and not the token.

    Args:
        tokenizer: A tokenizer with a chat template.
        history: See :data:`HistoryPolicy`.
        template_kwargs: Passed to the template, such as ``{"enable_thinking": False}``.

    Raises:
        ValueError: the tokenizer has no chat template, or the template cannot be appended to.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        history: HistoryPolicy = "template",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if getattr(tokenizer, "chat_template", "unknown") is None:
            raise ValueError("the tokenizer has no chat template; set one or use PlainRenderer")
        if history not in ("template", "append"):
            raise ValueError(f"history must be 'template' or 'append', got {history!r}")
        self.tokenizer = tokenizer
        self.history = history
        self._kwargs = dict(template_kwargs or {})
        self._specials = _special_strings(tokenizer)
        self._to_ids = _encoder(tokenizer)
        # Observations recur ("That square is taken."), and rendering and encoding one takes longer than a game's step.
        self._tails: dict[str, str | None] = {}
        self._encoded: dict[str, list[int]] = {}
        #: What the template puts around an observation after a reply, where that does not depend on the observation.
        self._frame: tuple[str, str] | None = None
        #: The delta after a reply is the same at every turn, for replies without and with a reasoning block.
        self._appends_plain = self._appends(_REPLY)
        self._appends_reasoning = self._appends_plain and self._appends(f"<think>\nreason\n</think>\n\n{_REPLY}")
        if history == "append" and self._minimal_tail(_OBSERVATION) is None:
            raise ValueError(
                "the chat template drops earlier replies, so nothing can be appended; use history='template'"
            )
        self._frame = self._find_frame()

    def start(self, messages: Sequence[Message]) -> list[int]:
        return self._encode(self._render(messages))

    def extend(self, messages: Sequence[Message], observation: str, last_token: int | None) -> Context:
        observation = self._inert(observation)
        if self.history == "append" or self._can_skip_check(messages):
            tail = self._minimal_tail(observation)
        else:
            tail = self._checked_tail(messages, observation)
        if tail is None:
            return Context(self.start([*messages, {"role": "user", "content": observation}]), new_sequence=True)
        ids = self._encode(tail)
        # The tail begins with the template's end-of-turn token. Sampled already: not again. Missing after a length
        # stop: it stays, as an environment token.
        if ids and ids[0] == last_token:
            ids = ids[1:]
        return Context(ids, new_sequence=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    # -- the template's delta ---------------------------------------------------------------------------------

    def _can_skip_check(self, messages: Sequence[Message]) -> bool:
        """True where the template is known to append, so that an episode costs time linear in its tokens."""
        if self._appends_reasoning:
            return True
        return self._appends_plain and not any("</think>" in m["content"] for m in messages)

    def _minimal_tail(self, observation: str) -> str | None:
        """What the template puts after a reply, read off the shortest conversation."""
        if observation in self._tails:
            return self._tails[observation]
        # Templates look for tags in messages; what has none and no space to trim goes in as it is.
        if self._frame is not None and "<" not in observation and observation.strip() == observation != "":
            return f"{self._frame[0]}{observation}{self._frame[1]}"
        text = self._render(
            [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": _REPLY},
                {"role": "user", "content": observation},
            ]
        )
        _, found, tail = text.partition(_REPLY)
        _remember(self._tails, observation, tail if found else None)
        return tail if found else None

    def _find_frame(self) -> tuple[str, str] | None:
        """Rendering is most of what a turn costs; it is spared where the template writes any text in one place."""
        first = self._minimal_tail(_OBSERVATION)
        if first is None or first.count(_OBSERVATION) != 1:
            return None
        head, _, foot = first.partition(_OBSERVATION)
        for probe in _FRAME_PROBES:
            if self._minimal_tail(probe) != head + probe + foot:
                return None
        return head, foot

    def _checked_tail(self, messages: Sequence[Message], observation: str) -> str | None:
        """What the template puts after the last reply of this very conversation; None where it rewrites history."""
        before = self._render(messages[:-1])
        after = self._render([*messages, {"role": "user", "content": observation}])
        if not after.startswith(before):
            return None
        rest = after[len(before) :]
        for reply in (messages[-1]["content"], messages[-1]["content"].strip()):  # many templates trim
            if rest.startswith(reply):
                return rest[len(reply) :]
        return None

    def _appends(self, reply: str) -> bool:
        """Probes the template with a long conversation of such replies."""
        expected = self._minimal_tail(_OBSERVATION)
        if expected is None:
            return False
        messages: list[Message] = [{"role": "user", "content": _OBSERVATION}]
        for _ in range(_PROBE_ROUNDS):
            messages.append({"role": "assistant", "content": reply})
            if self._checked_tail(messages, _OBSERVATION) != expected:
                return False
            messages.append({"role": "user", "content": _OBSERVATION})
        return True

    def _inert(self, text: str) -> str:
        """An environment's text must not forge the borders of turns: a zero-width space breaks special tokens in it."""
        for special in self._specials:
            if special in text:
                text = text.replace(special, f"{special[0]}\u200b{special[1:]}")
        return text

    def _render(self, messages: Sequence[Message]) -> str:
        shown = [m if m["role"] == "assistant" else {**m, "content": self._inert(m["content"])} for m in messages]
        text = self.tokenizer.apply_chat_template(shown, tokenize=False, add_generation_prompt=True, **self._kwargs)
        assert isinstance(text, str)
        return text

    def _encode(self, text: str) -> list[int]:
        if (known := self._encoded.get(text)) is not None:
            return list(known)
        ids = self._to_ids(text)
        _remember(self._encoded, text, ids)
        return list(ids)


def _encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Text to ids without added special tokens; past the tokenizer's wrapper, which takes half of the time, where the
    wrapped tokenizer says the same."""

    def plain(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not all(hasattr(backend, a) for a in ("encode", "truncation", "padding")):
        return plain

    def direct(text: str) -> list[int]:
        if backend.truncation is not None or backend.padding is not None:  # left over from somebody's batch
            return plain(text)
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    probes = (_REPLY, f"  {_OBSERVATION}\n\n", "", "é 高い 🎲\t<b>", *_special_strings(tokenizer)[:4])
    return direct if all(direct(p) == plain(p) for p in probes) else plain


def _special_strings(tokenizer: object) -> tuple[str, ...]:
    """The strings that a tokenizer reads as special tokens wherever they stand."""
    found = set(getattr(tokenizer, "all_special_tokens", None) or ())
    decoder = getattr(tokenizer, "added_tokens_decoder", None) or {}
    found.update(str(t) for t in decoder.values() if getattr(t, "special", False))
    return tuple(sorted(s for s in found if len(s) > 1))


def _remember(memo: dict[str, Any], text: str, value: Any, most: int = 4096, longest: int = 4096) -> None:
    """Keeps ``value``, unless the text is long; a full memo starts afresh."""
    if len(text) > longest:
        return
    if len(memo) >= most:
        memo.clear()
    memo[text] = value


class PlainRenderer:
    """Observations as plain text, for base models and for wrappers that write the whole prompt themselves.

    Args:
        tokenizer: Any tokenizer.
        add_special_tokens: Let the tokenizer add its own (a BOS, say) before the first observation.
        separator: Put around observations after the first.
    """

    def __init__(self, tokenizer: Tokenizer, *, add_special_tokens: bool = False, separator: str = "\n") -> None:
        self.tokenizer = tokenizer
        self._special = add_special_tokens
        self._separator = separator

    def start(self, messages: Sequence[Message]) -> list[int]:
        text = self._separator.join(m["content"] for m in messages)
        ids = list(self.tokenizer.encode(text, add_special_tokens=self._special))
        return ids or [self._first_token()]  # no engine can generate from nothing

    def extend(self, messages: Sequence[Message], observation: str, last_token: int | None) -> Context:
        text = f"{self._separator}{observation}{self._separator}"
        return Context(list(self.tokenizer.encode(text, add_special_tokens=False)), new_sequence=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def _first_token(self) -> int:
        for name in ("bos_token_id", "eos_token_id"):
            if (token := getattr(self.tokenizer, name, None)) is not None:
                return int(token)
        raise ValueError("the first observation is empty and the tokenizer has no BOS or EOS token to start from")

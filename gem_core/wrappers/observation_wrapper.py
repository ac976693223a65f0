"""Observations that carry the episode so far, written as one text (GEM's ``concat`` family)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from gem_core.core import Env, EnvWrapper, Info, StepTuple, reset_env

if TYPE_CHECKING:
    from gem_core.chat import ChatTokenizer, Message

#: ``"end"``: after everything, a chat template's generation prompt included, which is where GEM 0.1 puts it.
#: ``"message"``: at the end of the newest observation, inside its chat message.
SuffixPosition = Literal["end", "message"]


class ObservationWrapper(EnvWrapper):
    """Writes the observations (and actions) of the episode into each observation.

    The texts are joined line by line, or rendered by the tokenizer's chat template. ``info["prefix"]`` is put before
    the result and ``info["suffix"]`` after it; both are then taken out of ``info``, so that nothing outside appends
    them a second time. With a tool wrapper inside, ``info["parsed_action"]`` stands for the action and a tool's
    result gets the chat role ``tool``.

    Args:
        env: The environment.
        include_action: Write the agent's actions too.
        include_chat_template: Render the whole history by the chat template; needs ``tokenizer`` and
            ``include_action``.
        apply_chat_template_on_reset: Render only the first observation by the chat template and append the rest as
            plain text; needs ``tokenizer``.
        max_history_length: How many earlier turns are kept beside the newest observation; None keeps all.
        tokenizer: A tokenizer with a chat template.
        suffix_position: See :data:`SuffixPosition`.

    Raises:
        ValueError: options that contradict each other, or a tokenizer that is needed and missing.
    """

    def __init__(
        self,
        env: Env,
        include_action: bool = True,
        include_chat_template: bool = True,
        apply_chat_template_on_reset: bool = False,
        max_history_length: int | None = None,
        tokenizer: ChatTokenizer | None = None,
        suffix_position: SuffixPosition = "end",
    ) -> None:
        super().__init__(env)
        if include_chat_template and apply_chat_template_on_reset:
            raise ValueError("include_chat_template and apply_chat_template_on_reset exclude each other")
        if include_chat_template and not include_action:
            raise ValueError("include_chat_template=True needs include_action=True: a chat has both sides")
        if (include_chat_template or apply_chat_template_on_reset) and tokenizer is None:
            raise ValueError("a chat template needs tokenizer=..., a tokenizer that has one")
        if max_history_length is not None and (
            isinstance(max_history_length, bool) or not isinstance(max_history_length, int) or max_history_length < 0
        ):
            raise ValueError(f"max_history_length must be a non-negative integer or None, got {max_history_length!r}")
        if suffix_position not in ("end", "message"):
            raise ValueError(f"suffix_position must be 'end' or 'message', got {suffix_position!r}")
        self.include_action = include_action
        self.include_chat_template = include_chat_template
        self.apply_chat_template_on_reset = apply_chat_template_on_reset
        self.max_history_length = max_history_length
        self.tokenizer = tokenizer
        self.suffix_position = suffix_position
        #: Earlier turns as (observation, is a tool's result, action).
        self._history: deque[tuple[str, bool, str]] = deque(maxlen=max_history_length)
        self._newest: tuple[str, bool] = ("", False)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        observation, info = reset_env(self.env, seed, options)
        info = dict(info)  # the inner environment may keep its own
        self._history.clear()
        if self.apply_chat_template_on_reset:
            shown = _with_line(observation, info.pop("suffix", "")) if self._suffix_inside else observation
            observation = self._render([{"role": "user", "content": shown}])
        self._newest = (observation, bool(info.get("use_tool", False)))
        return self._write(info)

    def step(self, action: str) -> StepTuple:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._history.append((*self._newest, info.get("parsed_action", action)))
        self._newest = (observation, bool(info.get("use_tool", False)))
        text, info = self._write(info)
        return text, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "history": [list(h) for h in self._history], "newest": list(self._newest)}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._history = deque(((o, tool, a) for o, tool, a in state["history"]), maxlen=self.max_history_length)
        self._newest = (state["newest"][0], state["newest"][1])

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def _suffix_inside(self) -> bool:
        return self.suffix_position == "message"

    def _write(self, info: Info) -> tuple[str, Info]:
        """The whole text, and ``info`` without what was put into it."""
        info = dict(info)
        prefix, suffix = info.pop("prefix", ""), info.pop("suffix", "")
        newest, is_tool = self._newest
        if suffix and self._suffix_inside:
            newest, suffix = _with_line(newest, suffix), ""
        if self.include_chat_template:
            messages: list[Message] = []
            for observation, was_tool, action in self._history:
                messages.append({"role": "tool" if was_tool else "user", "content": observation})
                messages.append({"role": "assistant", "content": action})
            messages.append({"role": "tool" if is_tool else "user", "content": newest})
            text = self._render(messages)
        else:
            parts: list[str] = []
            for observation, _, action in self._history:
                parts.append(observation)
                if self.include_action:
                    parts.append(action)
            text = "".join(map(_line, [*parts, newest]))
        return f"{prefix}{text}{suffix}", info

    def _render(self, messages: list[Message]) -> str:
        assert self.tokenizer is not None
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert isinstance(text, str)
        return text


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _with_line(text: str, suffix: str) -> str:
    return f"{_line(text)}{suffix}" if suffix else text

"""Wrappers by name, with GEM's names and settings."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gem_core.core import Env, check_keywords
from gem_core.registration import WrapperFn
from gem_core.wrappers.compact import RequestOnce
from gem_core.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem_core.wrappers.max_history import MaxHistory
from gem_core.wrappers.observation_wrapper import ObservationWrapper
from gem_core.wrappers.time_limit import TimeLimit

if TYPE_CHECKING:
    from gem_core.chat import ChatTokenizer


def _python_tool(
    env: Env,
    tool_reward: float = 0.0,
    tool_success_reward: float = 0.0,
    max_tool_uses: int | None = 5,
    timeout: float = 5,
    keep_error_last_line: bool = False,
) -> Env:
    """A tool of its own for every environment; the tool modules load only when one is built."""
    from gem_core.tools.python_code_tool import PythonCodeTool
    from gem_core.tools.tool_env_wrapper import ToolEnvWrapper

    tool = PythonCodeTool(timeout=timeout, keep_error_last_line=keep_error_last_line)
    return ToolEnvWrapper(
        env,
        tools=[tool],
        tool_reward=tool_reward,
        tool_success_reward=tool_success_reward,
        max_tool_uses=max_tool_uses,
    )


def _search_tool(
    env: Env,
    tool_reward: float = 0.0,
    tool_success_reward: float = 0.0,
    max_tool_uses: int | None = 5,
    topk: int = 3,
    timeout: float = 5,
    search_url: str | None = None,
) -> Env:
    from gem_core.tools.search_tool import SearchTool
    from gem_core.tools.tool_env_wrapper import ToolEnvWrapper

    return ToolEnvWrapper(
        env,
        tools=[SearchTool(search_url=search_url, topk=topk, timeout=timeout)],
        tool_reward=tool_reward,
        tool_success_reward=tool_success_reward,
        max_tool_uses=max_tool_uses,
    )


#: Name -> callable that takes the environment (and keywords). Tool wrappers come first, then one observation wrapper,
#: then the tracking wrapper.
WRAPPER_FACTORY: dict[str, Callable[..., Env]] = {
    "python_tool": partial(_python_tool, tool_reward=0.05, tool_success_reward=0.25),
    "python_tool_no_int_reward": _python_tool,
    "python_tool_no_int_reward_last_line_error": partial(_python_tool, keep_error_last_line=True),
    "search_tool": partial(_search_tool, tool_reward=0.3),
    "search_tool_no_int_reward": _search_tool,
    "concat": partial(ObservationWrapper, include_action=False, include_chat_template=False),
    "concat_with_action": partial(ObservationWrapper, include_action=True, include_chat_template=False),
    "concat_chat": partial(ObservationWrapper, include_action=True, include_chat_template=True),
    "concat_chat_on_reset": partial(
        ObservationWrapper, include_action=True, include_chat_template=False, apply_chat_template_on_reset=True
    ),
    "request_once": RequestOnce,
    "max_history": MaxHistory,
    "time_limit": TimeLimit,
    "episode_tracking": EpisodeTrackingWrapper,
}

#: A colon that begins ``key=``; those of a URL do not.
_SETTING_COLON = re.compile(r":(?=\s*\w+\s*=)")

#: Names whose wrapper renders by a chat template.
TOKENIZER_REQUIRED = ("concat_chat", "concat_chat_on_reset")


def get_wrapper_fns(wrappers: str, tokenizer: ChatTokenizer | None = None) -> list[WrapperFn]:
    """Turns names into the callables that :func:`gem_core.make_vec` takes.

    Args:
        wrappers: Names from :data:`WRAPPER_FACTORY`, comma-separated, innermost first; arguments follow a name after
            colons: ``"python_tool:timeout=2,time_limit:max_turns=8,concat:max_history_length=4"``. Empty: no wrapper.
        tokenizer: For the names in :data:`TOKENIZER_REQUIRED`; may also be given later, to the callable itself.

    Raises:
        ValueError: an unknown name or argument; the message names the nearest one.
    """
    fns: list[WrapperFn] = []
    for item in wrappers.split(",") if wrappers else ():
        name, *settings = _SETTING_COLON.split(item.strip())
        if name not in WRAPPER_FACTORY:
            near = difflib.get_close_matches(name, WRAPPER_FACTORY, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"no wrapper is called {name!r}{hint} (known: {', '.join(WRAPPER_FACTORY)})")
        factory = WRAPPER_FACTORY[name]
        kwargs = dict(_setting(name, s) for s in settings)
        check_keywords(factory.func if isinstance(factory, partial) else factory, kwargs, f"wrapper {name!r}")
        if name in TOKENIZER_REQUIRED and tokenizer is not None:
            kwargs["tokenizer"] = tokenizer
        fns.append(partial(factory, **kwargs) if kwargs else factory)
    return fns


def _setting(name: str, text: str) -> tuple[str, Any]:
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise ValueError(f"the argument {text!r} of wrapper {name!r} is not of the form key=value")
    try:
        return key.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return key.strip(), value.strip()

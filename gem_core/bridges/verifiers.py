"""Environments for verifiers (https://github.com/PrimeIntellect-ai/verifiers) as gem_core environments.

verifiers owns the rollout and calls a model; here each of its calls is an observation and ``step`` is the answer.
Both of its interfaces are served: ``load_environment`` (0.1 and 0.2) and the tasksets of ``verifiers.v1`` (0.4).
"""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar

from gem_core.bridges.chat_endpoint import Channel, ChatRequest, describe_tools, new_messages, open_channel, render
from gem_core.core import Cost, Env, Info, StepTuple, rng_from_state, rng_state
from gem_core.tools.event_loop import LoopThread

logger = logging.getLogger(__name__)

_MODEL = "gem"
#: Names an environment variable that holds no key: the endpoint needs none, and clients look for one.
_NO_KEY = "GEM_NO_API_KEY"

#: ``(reward, info)`` of a finished rollout.
Outcome = tuple[float, Info]


class VerifiersEnv(Env):
    """An environment package for verifiers, one row of its dataset an episode.

    verifiers scores whole rollouts: the last step carries the reward, all others 0. ``info`` of the last step has
    ``metrics`` and ``stop_condition``. Tools are described in the first observation and called with ``<tool_call>``.

    Args:
        name: The environment's (or taskset's) name, as verifiers loads it; its package must be installed.
        env_args: For ``load_environment`` (or the taskset's configuration).
        step_timeout_s: How long the environment may take between two answers, in seconds.
        max_rows: The first rows only; needed for tasksets without an end.
    """

    cost: ClassVar[Cost] = "waits"

    def __init__(
        self,
        name: str,
        env_args: Mapping[str, Any] | None = None,
        step_timeout_s: float = 300.0,
        max_rows: int | None = None,
    ) -> None:
        try:
            import verifiers
        except ModuleNotFoundError as e:
            raise ImportError(f"verifiers: needs the package {e.name!r}: pip install verifiers", name=e.name) from e
        self.name = name
        self.step_timeout_s = step_timeout_s
        load = _load_classic if hasattr(verifiers, "load_environment") else _load_v1
        try:
            self._rows, self._rollout = load(name, dict(env_args or {}), max_rows)
        except ModuleNotFoundError as e:
            raise ImportError(f"verifiers: no environment {name!r} is installed ({e})", name=e.name) from e
        if not self._rows:
            raise ValueError(f"verifiers:{name} has no rows")
        self._loop = LoopThread(f"gem-verifiers-{name}")
        self._channel: Channel | None = None
        self._future: Future[None] | None = None
        self._request: ChatRequest | None = None
        self._index = 0
        self._log: list[str] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """``options={"index": i}`` picks the row; otherwise one is drawn."""
        if seed is not None:
            self.seed(seed)
        chosen = dict(options or {})
        index = chosen.pop("index", None)
        if chosen:
            raise ValueError(f"verifiers:{self.name} takes the reset option 'index', got {sorted(chosen)}")
        if index is None:
            index = self.rng.randrange(len(self._rows))
        elif isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self._rows):
            raise ValueError(f"index must be from 0 to {len(self._rows) - 1}, got {index!r}")
        return self._start(index)

    def step(self, action: str) -> StepTuple:
        request = self._request
        if request is None:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        self._log.append(action)
        self._request = None
        request.answer(action)
        event = self._next_event()
        if isinstance(event, ChatRequest):
            self._request = event
            text = render(new_messages(request.messages, event.messages))
            return text, 0.0, False, False, {}
        reward, info = event
        self._end()
        return str(info.pop("final_observation", "")), reward, True, False, info

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.action_rng.randint(0, 9)}}}"

    def get_state(self) -> dict[str, Any]:
        """The row and the answers so far; :meth:`set_state` gives them again."""
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "index": self._index,
            "actions": list(self._log),
            "playing": self._request is not None,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self._end()
        if state["playing"]:
            self._start(state["index"])
            for action in state["actions"]:
                self.step(action)

    def close(self) -> None:
        self._end()
        self._loop.stop()

    # -- inside -----------------------------------------------------------------------------------------------

    def _start(self, index: int) -> tuple[str, Info]:
        self._end()
        self._index, self._log = index, []
        self._channel = channel = open_channel()

        async def rollout() -> None:
            try:
                channel.events.put(await self._rollout(self._rows[index], channel.base_url))
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as e:  # verifiers leaves by SystemExit where a login is missing
                channel.events.put(e)

        self._future = asyncio.run_coroutine_threadsafe(rollout(), self._loop.loop)
        event = self._next_event()
        if not isinstance(event, ChatRequest):
            self._end()
            raise RuntimeError(f"verifiers:{self.name}, row {index}: the rollout ended without asking the model")
        self._request = event
        return render(event.messages) + describe_tools(event.tools), {"index": index}

    def _next_event(self) -> ChatRequest | Outcome:
        assert self._channel is not None
        try:
            event: ChatRequest | Outcome | BaseException = self._channel.events.get(timeout=self.step_timeout_s)
        except queue.Empty:
            self._end()
            raise TimeoutError(f"verifiers:{self.name} did nothing for {self.step_timeout_s:g} s") from None
        if isinstance(event, BaseException):
            self._end()
            raise RuntimeError(f"verifiers:{self.name}: {type(event).__name__}: {event}") from event
        return event

    def _end(self) -> None:
        if self._future is not None:
            self._future.cancel()
        if self._channel is not None:
            self._channel.close()
        self._future, self._channel, self._request = None, None, None


Rollout = Callable[[Any, str], Coroutine[Any, Any, Outcome]]


def _load_classic(name: str, env_args: dict[str, Any], max_rows: int | None) -> tuple[list[Any], Rollout]:
    """``vf.load_environment``: rows of a ``datasets`` dataset, rollouts by ``run_rollout``."""
    import verifiers
    from verifiers.types import ClientConfig

    try:
        environment = verifiers.load_environment(name, **env_args)
    except ValueError as e:  # verifiers' own wrapping of a module that cannot be imported
        if isinstance(e.__cause__, ImportError):
            raise ImportError(f"verifiers: no environment {name!r} is installed ({e})") from e
        raise
    try:
        dataset = environment.get_dataset()
    except Exception:  # evaluation-only environments
        dataset = environment.get_eval_dataset()
    rows = [dict(dataset[i]) for i in range(min(len(dataset), max_rows or len(dataset)))]

    async def rollout(row: dict[str, Any], base_url: str) -> Outcome:
        client = ClientConfig(api_base_url=base_url, api_key_var=_NO_KEY, max_retries=0)
        output = await environment.run_rollout(row, client, _MODEL, {})
        if output.get("error"):
            raise RuntimeError(str(output["error"]))
        last = (output.get("completion") or [{}])[-1]
        shown = (
            render([dict(last)]) if isinstance(last, Mapping) and last.get("role") not in (None, "assistant") else ""
        )
        return float(output.get("reward") or 0.0), {
            "metrics": {k: float(v) for k, v in (output.get("metrics") or {}).items()},
            "stop_condition": output.get("stop_condition"),
            "final_observation": shown,
        }

    return rows, rollout


def _load_v1(name: str, env_args: dict[str, Any], max_rows: int | None) -> tuple[list[Any], Rollout]:
    """A ``verifiers.v1`` taskset: tasks, each played by the package's own single-agent environment."""
    from gem_core.bridges.verifiers_v1 import load

    return load(name, env_args, max_rows, model=_MODEL, key_variable=_NO_KEY)

"""Any OpenAI-compatible endpoint as a policy: chat by text, or completions by token ids."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gem_core.evaluation.errors import EndpointError, EndpointUnusableError, RetryableError
from gem_core.evaluation.rate_limit import RateLimiter
from gem_core.evaluation.wire import Answer, read_answer, read_error
from gem_core.session import Generation, Prompt

if TYPE_CHECKING:
    import aiohttp
    import tenacity

Mode = Literal["chat", "completions"]

#: Waiting between two tries of one request begins here and doubles.
_FIRST_WAIT_S = 0.5
_CONNECT_TIMEOUT_S = 10.0


@dataclass
class EndpointStats:
    """What was asked of an endpoint; read it at any time."""

    #: Answered in full.
    answered: int = 0
    #: Tries that failed, by reason: ``"429"``, ``"500"``, ``"timeout"``, ``"empty"``, ``"cut"``, ``"connect"``, ...
    failed_tries: Counter[str] = field(default_factory=Counter)
    #: Requests given up after all tries.
    given_up: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class OpenAIPolicy:
    """Asks an OpenAI-compatible endpoint (a provider's, or vLLM, SGLang, llama.cpp, ...) for each turn.

    ``mode="chat"`` sends the conversation's messages. ``mode="completions"`` sends the session's own token ids and
    takes ids and log probabilities back, so that episodes have exact :class:`~gem_core.episode.TokenSequence` s; it
    needs a session with a renderer and a server with ``return_token_ids`` (vLLM) or ``return_tokens_as_token_ids``.

    A request is tried again, after a growing wait, on 408, 409, 425, 429, 5xx, a time-out, a broken connection, half a
    response and an empty answer. A ``Retry-After`` holds back all requests. Such tries may have been billed by the
    server: every try of a turn carries the same ``Idempotency-Key``. An answer without text that used tokens (a model
    that thinks only, or ends its turn at once) is an answer, not a fault.

    Args:
        model: The model's name at the endpoint.
        base_url: Up to and including ``/v1``; None = ``$OPENAI_BASE_URL``, else OpenAI's own.
        api_key: None = ``$OPENAI_API_KEY``; local servers need none.
        mode: See above.
        temperature: None = the server's default; so for all that follow.
        top_p: Nucleus sampling.
        max_tokens: For each turn, where the session's limits do not say less.
        stop: Strings that end a turn.
        seed: Sent with an offset that differs from request to request, for servers that sample by it.
        logprobs: Ask for the sampled tokens' log probabilities (always asked for in ``"completions"``).
        extra_body: Further fields of the request, such as ``{"top_k": 20}``.
        headers: Further HTTP headers.
        timeout_s: For one try, from sending to the last byte.
        max_tries: Of one request.
        max_wait_s: Most seconds between two tries (unless the server asks for more).
        requests_per_minute: None = no limit.
        tokens_per_minute: Prompt and completion together; None = no limit.
        give_up_after: After so many requests given up in a row the endpoint counts as unusable.

    Raises:
        ImportError: aiohttp or tenacity is missing.
        ValueError: a value that makes no sense.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        mode: Mode = "chat",
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] | None = None,
        seed: int | None = None,
        logprobs: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 300.0,
        max_tries: int = 8,
        max_wait_s: float = 60.0,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        give_up_after: int = 20,
    ) -> None:
        self._aiohttp, self._tenacity = _packages()
        if mode not in ("chat", "completions"):
            raise ValueError(f"mode must be 'chat' or 'completions', got {mode!r}")
        if not model:
            raise ValueError("model is empty; give the name that the endpoint serves it under")
        if max_tries < 1 or give_up_after < 1:
            raise ValueError(f"max_tries and give_up_after must be at least 1, got {max_tries} and {give_up_after}")
        if not timeout_s > 0 or max_wait_s < 0:
            raise ValueError(f"timeout_s must be positive and max_wait_s not negative, got {timeout_s}, {max_wait_s}")
        if temperature is not None and temperature < 0:
            raise ValueError(f"temperature must not be negative, got {temperature!r}")
        self.model, self.mode = model, mode
        self.base_url = (base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/")
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, got {self.base_url!r}")
        self.timeout_s, self.max_tries, self.max_wait_s = timeout_s, max_tries, max_wait_s
        self.max_tokens, self.seed, self.logprobs = max_tokens, seed, logprobs or mode == "completions"
        self.stats = EndpointStats()
        self.limiter = RateLimiter(requests_per_minute, tokens_per_minute)
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        self._body = {
            name: value
            for name, value in (("temperature", temperature), ("top_p", top_p), ("stop", list(stop) if stop else None))
            if value is not None
        } | dict(extra_body or {})
        self._max_tokens_name = "max_tokens"
        self._give_up_after, self._given_up_in_a_row = give_up_after, 0
        self._jitter = random.Random(0)
        self._session: tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """What the answers depend on, for the record of a run (no key)."""
        return {
            "policy": self.model,
            "base_url": self.base_url,
            "mode": self.mode,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            **self._body,
        }

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`~gem_core.rollout.AsyncPolicy`; all prompts are asked for at once.

        Raises:
            EndpointError: a request was given up; see :mod:`gem_core.evaluation.errors`.
        """
        return list(await asyncio.gather(*(self.answer(p) for p in prompts)))

    async def answer(self, prompt: Prompt) -> Answer:
        """Asks for one prompt's answer, with retries."""
        key = hashlib.sha256(repr((prompt.episode_id, prompt.turn, prompt.token_ids, prompt.messages)).encode())
        body = self._request(prompt, key.digest())
        headers = {"Idempotency-Key": f"gem-{key.hexdigest()[:32]}"}
        estimate = self._estimate(prompt)
        retrying = self._tenacity.AsyncRetrying(
            stop=self._tenacity.stop_after_attempt(self.max_tries),
            wait=self._wait_s,
            retry=self._tenacity.retry_if_exception_type(RetryableError),
            reraise=True,
        )
        try:
            answer: Answer = await retrying(self._try, body, headers, estimate)
        except RetryableError as e:
            raise self._give_up(prompt, e) from e
        self._given_up_in_a_row = 0
        self.stats.answered += 1
        self.stats.prompt_tokens += answer.usage.get("prompt_tokens", 0)
        self.stats.completion_tokens += answer.usage.get("completion_tokens", 0)
        return answer

    async def aclose(self) -> None:
        """Closes the connections; in the event loop that generated."""
        if self._session is not None:
            _, session = self._session
            self._session = None
            await session.close()

    # -- one try ----------------------------------------------------------------------------------------------

    async def _try(self, body: dict[str, Any], headers: dict[str, str], estimate: int) -> Answer:
        await self.limiter.acquire(estimate)
        used = estimate
        try:
            status, reply, data = await self._post(body, headers)
            if status >= 400:
                used = 0  # a refused request is not counted by providers
                return await self._refused(status, reply, data, body, headers, estimate)
            answer = read_answer(data, self.mode)
            used = sum(answer.usage.get(n, 0) for n in ("prompt_tokens", "completion_tokens")) or estimate
            return answer
        except RetryableError as e:
            self.stats.failed_tries[e.reason] += 1
            raise
        except (asyncio.TimeoutError, TimeoutError) as e:  # aiohttp's are among them
            self.stats.failed_tries["timeout"] += 1
            raise RetryableError("timeout", f"no answer within {self.timeout_s:g} s") from e
        except self._aiohttp.ClientConnectorError as e:
            self.stats.failed_tries["connect"] += 1
            raise RetryableError("connect", str(e)) from e
        except (self._aiohttp.ClientError, OSError) as e:
            self.stats.failed_tries["cut"] += 1
            raise RetryableError("cut", f"{type(e).__name__}: {e}") from e
        finally:
            self.limiter.settle(estimate, used)

    async def _post(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        path = "/chat/completions" if self.mode == "chat" else "/completions"
        async with self._http().post(self.base_url + path, json=body, headers=headers) as reply:
            return reply.status, reply.headers, await reply.read()

    async def _refused(
        self,
        status: int,
        reply: Mapping[str, str],
        data: bytes,
        body: dict[str, Any],
        headers: dict[str, str],
        estimate: int,
    ) -> Answer:
        error = read_error(status, reply, data, f"{self.base_url} ({self.model})")
        if isinstance(error, RetryableError) and error.retry_after_s:
            self.limiter.pause(error.retry_after_s)
        if "max_completion_tokens" in str(error) and self._max_tokens_name in body and status == 400:
            # OpenAI's newer models refuse max_tokens; others do not know its successor.
            self._max_tokens_name = "max_completion_tokens"
            renamed = {"max_completion_tokens" if k == "max_tokens" else k: v for k, v in body.items()}
            if renamed != body:
                return await self._try(renamed, headers, estimate)
        raise error

    # -- parts ------------------------------------------------------------------------------------------------

    def _request(self, prompt: Prompt, key: bytes) -> dict[str, Any]:
        rooms = [n for n in (self.max_tokens, prompt.max_new_tokens) if n is not None]
        body: dict[str, Any] = {"model": self.model}
        if self.mode == "chat":
            body["messages"] = prompt.messages
            if self.logprobs:
                body |= {"logprobs": True, "return_token_ids": True}
        else:
            if not prompt.token_ids:
                raise ValueError("mode='completions' needs token ids: give the session a renderer, or use mode='chat'")
            body |= {"prompt": prompt.token_ids, "logprobs": 1}
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
        if rooms:
            body[self._max_tokens_name] = min(rooms)
        if self.seed is not None:
            # One seed for all would give all samples of a task the same answer.
            body["seed"] = (self.seed + int.from_bytes(key[:4], "big")) % 2**31
        return {**body, **self._body}

    def _estimate(self, prompt: Prompt) -> int:
        text = sum(len(m["content"]) for m in prompt.messages)
        return (len(prompt.token_ids) or text // 4) + (self.max_tokens or prompt.max_new_tokens or 0) // 2

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        wait = min(self.max_wait_s, _FIRST_WAIT_S * 2.0 ** (state.attempt_number - 1))
        wait *= 0.5 + 0.5 * self._jitter.random()  # so that those refused together do not come back together
        error = state.outcome.exception() if state.outcome is not None else None
        asked = getattr(error, "retry_after_s", None)
        return wait if asked is None else asked + min(wait, 0.1 * asked)

    def _give_up(self, prompt: Prompt, error: RetryableError) -> EndpointError:
        self.stats.given_up += 1
        self._given_up_in_a_row += 1
        text = f"{self.base_url} ({self.model}): given up after {self.max_tries} tries; the last: {error}"
        if error.reason == "connect":
            return EndpointUnusableError(f"{text}; is the server running?")
        if self._given_up_in_a_row >= self._give_up_after:
            return EndpointUnusableError(f"{text}; so were {self._given_up_in_a_row} requests in a row")
        return EndpointError(f"{text} (episode {prompt.episode_id}, turn {prompt.turn})")

    def _http(self) -> aiohttp.ClientSession:
        """The session of the running loop: connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session[0] is not loop:
            session = self._aiohttp.ClientSession(
                headers=self._headers,
                connector=self._aiohttp.TCPConnector(limit=0),  # the rollout says how many are under way
                timeout=self._aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
                trust_env=True,
            )
            self._session = loop, session
        return self._session[1]


def _packages() -> tuple[Any, Any]:
    try:
        import aiohttp
        import tenacity
    except ModuleNotFoundError as e:
        raise ImportError(
            f"an endpoint needs the package {e.name!r}: pip install 'gem-adapters[eval]'", name=e.name
        ) from e
    return aiohttp, tenacity

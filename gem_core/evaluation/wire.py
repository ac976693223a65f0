"""OpenAI's wire format: answers and refusals as our own types."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gem_core.episode import FinishReason
from gem_core.evaluation.errors import ContextLengthError, EndpointError, EndpointUnusableError, RetryableError
from gem_core.session import Generation

_RETRY_STATUS = frozenset({408, 409, 425, 429})
#: How servers say that a prompt is too long (OpenAI's code; vLLM's, SGLang's and llama.cpp's words).
_CONTEXT_WORDS = (
    "context_length_exceeded",
    "maximum context length",
    "maximum input length",
    "exceeds the available context",
    "longer than the model's context",
    "max_model_len",
)
#: The account is empty or blocked; waiting does not help.
_QUOTA_WORDS = ("insufficient_quota", "billing_hard_limit_reached", "account_deactivated")


@dataclass(frozen=True)
class Answer(Generation):
    """A generation with what it cost."""

    #: ``prompt_tokens`` and ``completion_tokens``, as the endpoint counts them; empty where it does not say.
    usage: Mapping[str, int] = field(default_factory=dict)


def read_answer(data: bytes, mode: Literal["chat", "completions"]) -> Answer:
    """Reads a response's body.

    Raises:
        RetryableError: half a response, none, or an empty answer.
        EndpointUnusableError: the server gives no token ids where they are needed.
    """
    if not data.strip():
        raise RetryableError("empty", "a response without a body")
    try:
        body = json.loads(data)
        choice = body["choices"][0]
        usage = _usage(body)
        finish: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
        if mode == "chat":
            return _chat(choice, finish, usage)
        return _completion(choice, finish, usage)
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise RetryableError("cut", f"the response is not JSON ({e}): {data[:120]!r}") from e
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as e:
        raise RetryableError("empty", f"no answer in the response ({e!r}): {data[:120]!r}") from e


def _usage(body: Mapping[str, Any]) -> dict[str, int]:
    usage = body.get("usage") or {}
    return {n: int(usage[n]) for n in ("prompt_tokens", "completion_tokens") if usage.get(n) is not None}


def _chat(choice: Mapping[str, Any], finish: FinishReason, usage: dict[str, int]) -> Answer:
    message = choice["message"]
    content = message.get("content")
    if isinstance(content, list):  # typed parts
        content = "".join(str(p.get("text", "")) for p in content)
    text = content or ""
    # Without text: an answer all the same if tokens were sampled for it, else a fault.
    if not text and not (usage.get("completion_tokens") or finish == "length"):
        raise RetryableError("empty", "an answer without text or tokens")
    ids = choice.get("token_ids")
    logprobs = None
    if ids:
        entries = (choice.get("logprobs") or {}).get("content") or []
        if len(entries) == len(ids):
            logprobs = [float(e["logprob"]) for e in entries]
    return Answer(tuple(ids or ()), logprobs, finish, text, usage)


def _completion(choice: Mapping[str, Any], finish: FinishReason, usage: dict[str, int]) -> Answer:
    logprobs = choice.get("logprobs") or {}
    ids = choice.get("token_ids")
    if ids is None:
        tokens = logprobs.get("tokens") or []
        if not all(str(t).startswith("token_id:") for t in tokens):
            raise EndpointUnusableError(
                "the endpoint returns no token ids (vLLM does, by return_token_ids); use mode='chat'"
            )
        ids = [int(str(t).removeprefix("token_id:")) for t in tokens]
    if not ids:
        raise RetryableError("empty", "a completion without tokens")
    values = logprobs.get("token_logprobs")
    if values is not None and len(values) != len(ids):
        values = None
    return Answer(tuple(map(int, ids)), None if values is None else [float(v) for v in values], finish, None, usage)


def read_error(status: int, headers: Mapping[str, str], data: bytes, where: str) -> Exception:
    """What a status of 400 and above means for the request."""
    detail = _message(data)
    low = detail.lower()
    if any(word in low for word in _QUOTA_WORDS):
        return EndpointUnusableError(f"{where}: {status}: {detail}")
    if status in _RETRY_STATUS or status >= 500:
        return RetryableError(str(status), detail, retry_after(headers))
    if status in (400, 413, 422) and any(word in low for word in _CONTEXT_WORDS):
        return ContextLengthError(f"{where}: {status}: {detail}")
    if status in (401, 403, 404, 405):
        hint = {401: "; is the API key right?", 404: "; are the URL (up to /v1) and the model's name right?"}
        return EndpointUnusableError(f"{where}: {status}: {detail}{hint.get(status, '')}")
    return EndpointError(f"{where}: {status}: {detail}")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds until the server wants to be asked again (RFC 9110, section 10.2.3; ``retry-after-ms`` is OpenAI's)."""
    try:
        if (ms := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(ms) / 1000)
        text = headers.get("retry-after")
        if text is None:
            return None
        try:
            return max(0.0, float(text))
        except ValueError:
            at = email.utils.parsedate_to_datetime(text).timestamp()
            return max(0.0, at - (time.time() if now is None else now))
    except (ValueError, TypeError):
        return None


def _message(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    try:
        body = json.loads(text)
    except ValueError:
        return text[:300]
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        parts = [str(error[k]) for k in ("code", "message", "detail") if error.get(k)]
        return ": ".join(parts)[:500] or text[:300]
    return str(error)[:500]

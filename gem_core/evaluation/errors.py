"""What goes wrong between a policy and its endpoint."""

from __future__ import annotations

from gem_core.episode import StopReason


class EndpointError(RuntimeError):
    """A request was given up; its episode ends as failed, the evaluation goes on."""


class PolicyUnusableError(RuntimeError):
    """No answer can be had from the policy: the evaluation ends, to be resumed."""


class EndpointUnusableError(PolicyUnusableError, EndpointError):
    """No request can succeed: wrong key, no such model, nobody listens."""


class ContextLengthError(EndpointError):
    """The conversation no longer fits the model's context window; the episode ends there, truncated."""

    #: How the rollout ends the episode.
    stop_reason = StopReason.CONTEXT_LENGTH


class RetryableError(Exception):
    """One try failed in a way that the next may not.

    Args:
        reason: A short word for the statistics: ``"429"``, ``"500"``, ``"timeout"``, ``"empty"``, ``"cut"``, ...
        detail: What happened, for the message.
        retry_after_s: When the server asks to come again.
    """

    def __init__(self, reason: str, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.retry_after_s = retry_after_s

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import pytest
from evaluation_support import CannedServer, chat, reply

from gem_core.evaluation import ContextLengthError, EndpointError, EndpointUnusableError, OpenAIPolicy
from gem_core.evaluation.wire import Answer, retry_after
from gem_core.session import Prompt

PROMPT = Prompt([], [{"role": "user", "content": "hello"}], None, "env:0:0", 0)
TOKENS = Prompt([5, 6, 7], [{"role": "user", "content": "hello"}], 9, "env:0:0", 0)


def ask(server: CannedServer, prompt: Prompt = PROMPT, **options: Any) -> Answer:
    async def run() -> Answer:
        policy = OpenAIPolicy("m", base_url=server.base_url, **{"max_wait_s": 0.02, "timeout_s": 5.0, **options})
        try:
            return await policy.answer(prompt)
        finally:
            await policy.aclose()

    return asyncio.run(run())


def completion(ids: list[int] | None, **more: Any) -> bytes:
    tokens = [f"token_id:{i}" for i in ids or ()]
    logprobs = {"tokens": tokens, "token_logprobs": [-0.25] * len(tokens)}
    return reply(200, {"choices": [{"text": "?", "finish_reason": "stop", "logprobs": logprobs, **more}]})


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (reply(429, {"error": {"message": "slow"}}), "429"),
        (reply(500, b"oops"), "500"),
        (reply(503, b""), "503"),
        (reply(200, b""), "empty"),
        (reply(200, {"choices": []}), "empty"),
        (reply(200, {"choices": [{"message": {"content": None}}]}), "empty"),
        (chat(""), "empty"),
        (chat("half of it")[:-20], "cut"),
        (reply(200, b'{"choices": [{"mess'), "cut"),
        (None, "timeout"),
    ],
)
def test_a_failed_try_is_followed_by_another(canned: CannedServer, bad: bytes | None, reason: str) -> None:
    canned.responses = [bad, bad, chat("fine", prompt_tokens=3, completion_tokens=2)]

    async def run() -> OpenAIPolicy:
        policy = OpenAIPolicy("m", base_url=canned.base_url, max_wait_s=0.02, timeout_s=0.3)
        assert (await policy.generate([PROMPT]))[0].text == "fine"
        await policy.aclose()
        return policy

    stats = asyncio.run(run()).stats
    assert dict(stats.failed_tries) == {reason: 2}
    assert (stats.answered, stats.given_up, stats.prompt_tokens, stats.completion_tokens) == (1, 0, 3, 2)
    # Every try carries the same key, so that a provider that knows it bills one.
    assert len({h["idempotency-key"] for h in canned.headers}) == 1


def test_it_gives_up_after_max_tries_and_says_why(canned: CannedServer) -> None:
    canned.responses = [reply(500, {"error": {"message": "the model fell over"}})]
    with pytest.raises(EndpointError, match=r"given up after 3 tries; the last: 500: the model fell over"):
        ask(canned, max_tries=3)
    assert len(canned.requests) == 3


def test_many_requests_given_up_in_a_row_make_the_endpoint_unusable(canned: CannedServer) -> None:
    canned.responses = [reply(500, b"")]

    async def run() -> None:
        policy = OpenAIPolicy("m", base_url=canned.base_url, max_tries=1, give_up_after=3)
        for _ in range(2):
            with pytest.raises(EndpointError) as given_up:
                await policy.answer(PROMPT)
            assert not isinstance(given_up.value, EndpointUnusableError)
        with pytest.raises(EndpointUnusableError, match="3 requests in a row"):
            await policy.answer(PROMPT)
        await policy.aclose()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": {"message": "bad key"}}, EndpointUnusableError, "is the API key right"),
        (404, {"error": {"message": "no model m"}}, EndpointUnusableError, "model's name right"),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, EndpointUnusableError, "insufficient_quota"),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8"}},
            ContextLengthError,
            "maximum context",
        ),
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, ContextLengthError, "exceeded"),
        (400, {"error": {"message": "temperature must be below 2"}}, EndpointError, "temperature must be below 2"),
    ],
)
def test_a_refusal_that_time_does_not_heal_is_not_tried_again(
    canned: CannedServer, status: int, body: Any, kind: type[Exception], words: str
) -> None:
    canned.responses = [reply(status, body)]
    with pytest.raises(kind, match=words) as caught:
        ask(canned)
    assert type(caught.value) is kind
    assert len(canned.requests) == 1


def test_nobody_listening_is_unusable() -> None:
    nobody = CannedServer(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(EndpointUnusableError, match="is the server running"):
        ask(nobody, max_tries=2)


def test_retry_after_is_waited_for_by_every_request(canned: CannedServer) -> None:
    canned.responses = [reply(429, b"{}", "Retry-After: 0.4\r\n"), chat("fine")]

    async def run() -> float:
        policy = OpenAIPolicy("m", base_url=canned.base_url, max_wait_s=0.01)
        first = asyncio.ensure_future(policy.answer(PROMPT))
        while not policy.stats.failed_tries:
            await asyncio.sleep(0.005)
        began = time.perf_counter()
        await policy.answer(Prompt([], PROMPT.messages, None, "another", 0))
        waited = time.perf_counter() - began
        await first
        await policy.aclose()
        return waited

    assert 0.3 < asyncio.run(run()) < 3.0


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after": "7"}) == 7.0
    assert retry_after({"retry-after-ms": "250"}) == 0.25
    assert retry_after({"retry-after": formatdate(1_000_030, usegmt=True)}, now=1_000_000) == 30.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_a_request_says_what_was_asked_for(canned: CannedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    canned.responses = [chat("ok")]
    prompt = Prompt([], PROMPT.messages, 7, "env:0:0", 0)
    ask(canned, prompt, temperature=0.5, top_p=0.9, max_tokens=20, stop=["\n"], seed=3, extra_body={"top_k": 4})
    sent = canned.requests[0]
    seed = sent.pop("seed")
    assert sent == {
        "model": "m",
        "messages": PROMPT.messages,
        "max_tokens": 7,  # the session's limit is the smaller one
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["\n"],
        "top_k": 4,
    }
    assert canned.headers[0]["authorization"] == "Bearer secret"
    ask(canned, prompt, seed=3)
    ask(canned, Prompt([], PROMPT.messages, 7, "env:0:1", 0), seed=3)
    assert canned.requests[1]["seed"] == seed != canned.requests[2]["seed"]  # another sample of the same task


def test_a_model_that_wants_max_completion_tokens_gets_it(canned: CannedServer) -> None:
    refusal = reply(400, {"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}})
    canned.responses = [refusal, chat("fine")]
    assert ask(canned, max_tokens=5).text == "fine"
    assert canned.requests[1]["max_completion_tokens"] == 5
    assert "max_tokens" not in canned.requests[1]


def test_an_answer_of_tokens_without_text_is_an_answer(canned: CannedServer) -> None:
    canned.responses = [chat("", completion_tokens=1)]
    assert ask(canned).text == ""
    canned.responses = [chat(None, finish="length", completion_tokens=64)]
    answer = ask(canned)
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert len(canned.requests) == 2


def test_completions_take_and_give_token_ids(canned: CannedServer) -> None:
    canned.responses = [completion(None, token_ids=[8, 9, 2], logprobs={"token_logprobs": [-1.0, -0.5, -0.1]})]
    answer = ask(canned, TOKENS, mode="completions", max_tokens=100)
    assert (tuple(answer.token_ids), answer.logprobs, answer.text) == ((8, 9, 2), [-1.0, -0.5, -0.1], None)
    assert canned.requests[0]["prompt"] == [5, 6, 7]
    assert canned.requests[0]["max_tokens"] == 9
    canned.responses = [completion([8, 9])]  # ids as token names, as older servers give them
    older = ask(canned, TOKENS, mode="completions")
    assert (tuple(older.token_ids), older.logprobs) == ((8, 9), [-0.25, -0.25])


def test_a_server_without_token_ids_is_refused_by_name(canned: CannedServer) -> None:
    body = {
        "choices": [{"text": "hi", "logprobs": {"tokens": ["hi"], "token_logprobs": [-1]}, "finish_reason": "stop"}]
    }
    canned.responses = [reply(200, body)]
    with pytest.raises(EndpointUnusableError, match="use mode='chat'"):
        ask(canned, TOKENS, mode="completions")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "talk"}, "'chat' or 'completions'"),
        ({"model": ""}, "model is empty"),
        ({"base_url": "localhost:8000"}, "http://"),
        ({"max_tries": 0}, "max_tries"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"temperature": -1}, "temperature"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OpenAIPolicy(**{"model": "m", "base_url": "http://x/v1", **options})

"""Web or corpus search through an HTTP retrieval server."""

from __future__ import annotations

import json
import logging
import os
import ssl
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gem_core.tools.base_tool import BaseTool, ToolCall
from gem_core.tools.event_loop import SHARED
from gem_core.tools.tool_calls import find_tagged, iter_chat_calls

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

#: How the request body is written: ``"json"`` (Search-R1's and our own server), ``"msgpack"`` (GEM 0.1's server), or
#: ``"auto"``: JSON first, MessagePack where the server does not understand it; the answer is read in either.
WireFormat = Literal["auto", "json", "msgpack"]

#: How GEM marks a failed search, inside the ``<information>`` block.
_ERROR = "[SearchTool Error: "
_ATTEMPTS = 3
_FIRST_WAIT_S = 0.1
#: Statuses worth another attempt with the same body.
_RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Statuses by which a server says that it cannot read the body.
_UNREADABLE = frozenset({400, 406, 415, 422})


class SearchTool(BaseTool):
    """Answers ``<search>query</search>`` with the best passages in ``<information>...</information>``.

    A chat model's ``<tool_call>`` named ``search`` with an argument ``query`` is understood too. Connection errors and
    busy servers are tried again, within the same ``timeout``. Safe to share between threads.

    Args:
        num_workers: Kept for GEM's signature.
        search_url: The server's ``/retrieve`` address; None reads the environment variable ``SEARCH_URL`` at first use.
        topk: Passages a query.
        timeout: Seconds for a query in all, attempts and waits between them included.
        wire_format: See :data:`WireFormat`.

    Raises:
        ValueError: ``topk`` or ``timeout`` is not positive, or an unknown ``wire_format``.
    """

    tool_type: ClassVar[str] = "search"
    call_names = ("search",)

    def __init__(
        self,
        num_workers: int = 1,
        search_url: str | None = None,
        topk: int = 3,
        timeout: float = 5,
        wire_format: WireFormat = "auto",
    ) -> None:
        super().__init__(num_workers)
        if isinstance(topk, bool) or not isinstance(topk, int) or topk < 1:
            raise ValueError(f"topk must be a positive integer, got {topk!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if wire_format not in ("auto", "json", "msgpack"):
            raise ValueError(f"wire_format must be 'auto', 'json' or 'msgpack', got {wire_format!r}")
        self.search_url = search_url
        self.topk = topk
        self.timeout = timeout
        self.wire_format: WireFormat = wire_format
        self._client: httpx.AsyncClient | None = None
        self._client_pid = 0
        self._lock = threading.Lock()

    def instruction_string(self) -> str:
        return (
            "You can look things up with a search engine. Say in <think>...</think> what you still need to know, then "
            "write\n  <search> your query </search>\nand stop; the best passages come back as\n"
            "  <information> ... </information>\nSearch as often as you need. When you know the answer, give it as\n"
            "  <answer> your answer </answer>"
        )

    def find(self, action: str, start: int = 0) -> ToolCall | None:
        best: ToolCall | None = None
        if tagged := find_tagged(action, "search", start):
            best = ToolCall(tagged[0], tagged[1], arguments={"query": tagged[2]})
        for call in iter_chat_calls(action, start):
            if best is not None and call.start > best.start:
                break
            if call.name in self.call_names:
                return call
        return best

    def run(self, call: ToolCall) -> tuple[bool, str]:
        query = call.arguments.get("query", call.arguments.get("queries"))
        if isinstance(query, list) and len(query) == 1:
            query = query[0]
        if call.error is None and not isinstance(query, str):
            has_error, text = True, f"{_ERROR}the call needs one argument, query, a string]"
        elif call.error is not None:
            has_error, text = True, f"{_ERROR}{call.error}]"
        else:
            has_error, text = self._search(str(query))
        return has_error, f"\n\n<information>{text}</information>\n\n"

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._client_pid == os.getpid():
            try:
                SHARED.run(client.aclose(), 1.0)
            except Exception:
                logger.debug("closing the search client failed", exc_info=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_client": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    # -- inside -----------------------------------------------------------------------------------------------

    def _search(self, query: str) -> tuple[bool, str]:
        url = self.search_url or os.environ.get("SEARCH_URL")
        if not url:
            message = "no search server is named; give search_url=... or set SEARCH_URL"
            logger.error("SearchTool: %s", message)
            return True, f"{_ERROR}{message}]"
        try:
            client = self._http()
        except ModuleNotFoundError as e:
            raise ImportError(
                f"SearchTool needs the package {e.name!r}: pip install 'gem-adapters[search]'", name=e.name
            ) from e
        try:
            documents = _documents(SHARED.run(self._post(client, url, query), self.timeout))
            return False, format_passages(documents)
        except TimeoutError:
            message = f"{url} gave no answer within {self.timeout:g} s"
        except Exception as e:
            message = f"{type(e).__name__}: {str(e) or url}"[:500]
        logger.warning("search failed: %s", message)
        return True, f"{_ERROR}{message}]"

    def _http(self) -> httpx.AsyncClient:
        with self._lock:
            if self._client is None or self._client_pid != os.getpid():
                import httpx
                import tenacity  # noqa: F401 - a missing package shows here, where the caller names the extra

                # The deadline of the whole query is the only time-out: LoopThread cancels what is still running.
                limits = httpx.Limits(max_connections=256, max_keepalive_connections=32)
                self._client = httpx.AsyncClient(
                    timeout=None, limits=limits, follow_redirects=True, verify=_certificates()
                )
                self._client_pid = os.getpid()
            return self._client

    async def _post(self, client: httpx.AsyncClient, url: str, query: str) -> Any:
        formats = ("json", "msgpack") if self.wire_format == "auto" else (self.wire_format,)
        refused: Exception | None = None
        for wire in formats:
            if refused is not None and not _have_msgpack():
                break
            try:
                body = await self._post_as(wire, client, url, query)
            except _UnreadableError as e:
                refused = refused or e
                continue
            if self.wire_format == "auto":
                self.wire_format = "json" if wire == "json" else "msgpack"
            return body
        assert refused is not None
        raise refused

    async def _post_as(self, wire: str, client: httpx.AsyncClient, url: str, query: str) -> Any:
        import httpx
        import tenacity

        # Both spellings of the question: "queries" is Search-R1's, "query" GEM's.
        request: dict[str, Any] = {"query": query, "topk": self.topk, "return_scores": True}
        if wire == "json":
            content = json.dumps({"queries": [query], **request}).encode()
        else:
            content = _msgpack().encode(request)

        def worth_retrying(e: BaseException) -> bool:
            return isinstance(e, httpx.TransportError) or (
                isinstance(e, httpx.HTTPStatusError) and e.response.status_code in _RETRY_STATUS
            )

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_exponential(multiplier=_FIRST_WAIT_S, max=2.0) + tenacity.wait_random(0, _FIRST_WAIT_S),
            retry=tenacity.retry_if_exception(worth_retrying),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                try:
                    response = await client.post(
                        url, content=content, headers={"Content-Type": f"application/{wire}", "Accept": "*/*"}
                    )
                except httpx.RemoteProtocolError as e:
                    # Some servers hang up on a body they cannot read.
                    if attempt.retry_state.attempt_number == _ATTEMPTS:
                        raise _UnreadableError(f"{url} hung up: {e}") from e
                    raise
                if response.status_code in _UNREADABLE:
                    raise _UnreadableError(f"{url} answered {response.status_code}: {response.text[:200]}")
                response.raise_for_status()
                return _decode(response.content)
        raise AssertionError("tenacity reraises")


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a search, so all tools share them."""
    import httpx

    return httpx.create_ssl_context()


class _UnreadableError(Exception):
    """The server does not understand the body."""


def _decode(content: bytes) -> Any:
    if content.lstrip()[:1] in (b"{", b"["):
        return json.loads(content)
    if _have_msgpack():
        return _msgpack().decode(content)
    raise ValueError(f"the server's answer is not JSON: {content[:80]!r}")


def _have_msgpack() -> bool:
    try:
        _msgpack()
    except ImportError:
        return False
    return True


def _msgpack() -> Any:
    try:
        import msgspec
    except ModuleNotFoundError as e:
        raise ImportError(
            "the MessagePack wire format needs the package 'msgspec': pip install 'gem-adapters[search]'", name=e.name
        ) from e
    return msgspec.msgpack


def _documents(body: Any) -> list[str]:
    """The passages' texts from ``{"result": [{"document": {"contents": ...}, "score": ...}, ...]}``, or from the same
    inside a list with one entry a query."""
    result = body.get("result", body.get("results")) if isinstance(body, dict) else body
    if isinstance(result, list) and len(result) == 1 and isinstance(result[0], list):
        result = result[0]
    if not isinstance(result, list):
        raise ValueError(f"the server's answer has no list 'result': {str(body)[:80]}")
    return [_contents(item) for item in result]


def _contents(item: Any) -> str:
    document = item.get("document", item) if isinstance(item, dict) else item
    if isinstance(document, str):
        return document
    if isinstance(document, dict):
        if isinstance(document.get("contents"), str):
            return str(document["contents"])
        if isinstance(document.get("text"), str):
            return f"{document.get('title', '')}\n{document['text']}"
    raise ValueError(f"a passage in the server's answer has no 'contents': {str(item)[:80]}")


def format_passages(contents: list[str]) -> str:
    """Passages as the agent reads them; the first line of each is its title."""
    if not contents:
        return "Nothing was found.\n"
    lines = []
    for number, text in enumerate(contents, 1):
        title, _, rest = text.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {rest}\n")
    return "".join(lines)

"""One connection to an MCP server, kept by a task of its own and opened again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from gem_core.tools.mcp_config import ServerConfig

if TYPE_CHECKING:
    from mcp import Client

logger = logging.getLogger(__name__)

#: How long a server that let a call run out may take to answer a small question before it counts as hung, in seconds.
_PROBE_S = 2.0
#: The SDK closes stdin, waits 2 s, terminates, waits 2 s, kills.
_CLOSE_S = 7.0
_MAX_PAGES = 100
#: JSON-RPC codes of errors that a healthy connection delivers: the request was bad, or the tool raised.
_HEALTHY_CODES = frozenset({-32601, -32602, -32603, -32700})
_INVALID_REQUEST = -32600


class ConnectionBrokenError(Exception):
    """The server went away; the call may or may not have run."""


class Connection:
    """All methods run in one event loop.

    The client is entered and left by the same task, as the SDK's cancel scopes require; calls come from other tasks.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self._probe: asyncio.Task[None] | None = None
        #: Keepers of earlier connections that are still closing; a hung server takes seconds to end.
        self._retired: set[asyncio.Task[None]] = set()
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - kept open

    async def client(self) -> Client:
        """The open client, connecting where needed."""
        if self._probe is not None:
            await asyncio.shield(self._probe)
        async with self._lock:
            if self._client is None or self._keeper is None or self._keeper.done():
                await self._open()
            assert self._client is not None
            return self._client

    async def list_tools(self) -> list[Any]:
        """All tools of the server, over all pages."""
        client = await self.client()
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Calls a tool.

        Raises:
            ConnectionBrokenError: the connection failed; the next call opens another.
            mcp.MCPError: the server answered with a protocol error.
        """
        from mcp import MCPError

        client = await self.client()
        try:
            return await client.call_tool(tool, arguments)
        except asyncio.CancelledError:  # the caller's time is up
            self._start_probe(client)
            raise
        except MCPError as e:
            lost_session = e.code == _INVALID_REQUEST and "session" in str(e).lower()
            if e.code in _HEALTHY_CODES or (e.code == _INVALID_REQUEST and not lost_session):
                raise
            await self._drop(client)
            raise ConnectionBrokenError(self._explain(e)) from e
        except Exception as e:  # closed streams, refused connections, exception groups of the transport
            await self._drop(client)
            raise ConnectionBrokenError(self._explain(e)) from e

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        async with self._lock:
            self._retire()
        if self._retired:
            _, left = await asyncio.wait(self._retired, timeout=_CLOSE_S)
            for keeper in left:
                keeper.cancel()
        with contextlib.suppress(OSError):
            self._log.close()

    # -- inside -----------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._retire()
        self._stop = asyncio.Event()
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(self._stop, opened), name=f"mcp-{self.config.name}")
        try:
            self._client = await asyncio.shield(opened)
        except asyncio.CancelledError:
            self._keeper.cancel()
            self._retire()
            raise
        except Exception as e:
            self._client = None
            raise ConnectionBrokenError(self._explain(e)) from e

    async def _keep(self, stop: asyncio.Event, opened: asyncio.Future[Client]) -> None:
        from mcp import Client

        try:
            async with self._transport() as transport, Client(transport) as client:
                if not opened.done():
                    opened.set_result(client)
                await stop.wait()
        except asyncio.CancelledError:
            opened.cancel()
            raise
        except Exception as e:
            if not opened.done():
                opened.set_exception(e)
            else:
                logger.debug("MCP server %s: closing failed", self.config.name, exc_info=True)

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        config = self.config
        if config.transport == "stdio":
            from mcp import StdioServerParameters
            from mcp.client.stdio import stdio_client

            parameters = StdioServerParameters(
                command=config.command, args=list(config.args), env=config.env or None, cwd=config.cwd
            )
            self._log.seek(0)
            self._log.truncate()
            yield stdio_client(parameters, errlog=self._log)
        elif config.transport == "http":
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            # The caller's deadline is the time-out; a streamed answer may take its time.
            async with httpx2.AsyncClient(headers=config.headers, timeout=httpx2.Timeout(30.0, read=None)) as http:
                yield streamable_http_client(config.url, http_client=http)
        else:
            from mcp.client.sse import sse_client

            yield sse_client(config.url, headers=dict(config.headers))

    async def _drop(self, client: Client | None) -> None:
        """Closes the connection, unless another call has opened a new one already."""
        async with self._lock:
            if client is not None and client is not self._client:
                return
            self._retire()

    def _retire(self) -> None:
        """Lets the connection close in the background."""
        keeper, self._keeper, self._client = self._keeper, None, None
        if keeper is not None:
            self._stop.set()
            self._retired.add(keeper)
            keeper.add_done_callback(self._retired.discard)

    def _start_probe(self, client: Client) -> None:
        """After a call ran out of time: a server that answers nothing else either is dropped; a slow tool is not a
        reason to cut off everybody's calls."""

        async def probe() -> None:
            try:
                await asyncio.wait_for(client.list_tools(cache_mode="bypass"), _PROBE_S)
            except Exception:
                logger.warning("MCP server %s hangs; it is restarted with the next call", self.config.name)
                await self._drop(client)
            finally:
                self._probe = None

        if self._probe is None and client is self._client:
            self._probe = asyncio.get_running_loop().create_task(probe())

    def _explain(self, error: BaseException) -> str:
        while (inner := getattr(error, "exceptions", None)) and len(inner) == 1:  # exception groups of one
            error = inner[0]
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        said = self._last_words()
        return f"server {self.config.describe()}: {text}{f'; it wrote: {said}' if said else ''}"

    def _last_words(self, limit: int = 300) -> str:
        """The end of what a stdio server wrote to its standard error."""
        if self._log.closed or self.config.transport != "stdio":
            return ""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), limit, max(0, size - limit)).decode("utf-8", "replace").strip()

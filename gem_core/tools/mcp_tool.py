"""Tools of Model Context Protocol servers, through the official SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from gem_core.tools.base_tool import BaseTool, ToolCall
from gem_core.tools.event_loop import LoopThread
from gem_core.tools.mcp_config import ServerConfig, read_config
from gem_core.tools.mcp_connection import Connection, ConnectionBrokenError
from gem_core.tools.tool_calls import iter_chat_calls

logger = logging.getLogger(__name__)

T = TypeVar("T")
_CLOSE_S = 10.0


class MCPTool(BaseTool):
    """Calls the tools of one or more MCP servers.

    A call is ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` (GEM's ``<tool_name>`` form and Qwen's XML
    are understood); the answer comes back in ``<tool_response>``. With several servers a tool is called
    ``server_tool``; the bare name works where only one server has it. Connections are opened at first use, live in a
    thread of their own, serve any number of threads and environments, and are opened again after a server died.

    Args:
        config: A URL (streamable HTTP), one server's dict (``command``, ``args``, ``env``, ``cwd``, or ``url``,
            ``headers``), or ``{"mcpServers": {name: dict}}``.
        auth: Bearer token, with a URL only.
        headers: HTTP headers, with a URL only.
        max_retries: Attempts of a call whose connection breaks, the first included. A call that was under way when its
            server died may run twice; 1 rules that out.
        delay_between_retries: Seconds between attempts.
        execution_timeout: Seconds for one call in all, attempts and reconnecting included.
        connect_timeout: Seconds for connecting to all servers and listing their tools.
        validate_on_init: Connect and list the tools at once.
        num_workers: Kept for GEM's signature.

    Raises:
        ImportError: the package ``mcp`` is missing or older than 2.
        ValueError: the configuration makes no sense; with ``validate_on_init`` also where a server cannot be reached or
            has no tools.
    """

    tool_type: ClassVar[str] = "mcp"

    _lock: threading.RLock
    _loop: LoopThread
    _connections: dict[str, Connection]
    _tools: list[dict[str, Any]] | None
    _pid: int

    def __init__(
        self,
        config: str | Mapping[str, Any],
        auth: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_retries: int = 3,
        delay_between_retries: float = 0.5,
        execution_timeout: float = 30.0,
        connect_timeout: float = 30.0,
        validate_on_init: bool = True,
        num_workers: int = 1,
    ) -> None:
        super().__init__(num_workers)
        _check_sdk()
        if max_retries < 1:
            raise ValueError(f"max_retries must be at least 1, got {max_retries!r}")
        for name, value in (("execution_timeout", execution_timeout), ("connect_timeout", connect_timeout)):
            if not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
        self.servers: list[ServerConfig] = read_config(config, auth, headers)
        self.max_retries = max_retries
        self.delay_between_retries = delay_between_retries
        self.execution_timeout = execution_timeout
        self.connect_timeout = connect_timeout
        self._reset()
        if validate_on_init:
            try:
                self.get_available_tools()
            except Exception:
                self.close()
                raise

    @classmethod
    def from_config_file(cls, path: str | Path, **kwargs: Any) -> MCPTool:
        """From a JSON file of the form ``{"mcpServers": {...}}``."""
        try:
            config = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as e:
            raise ValueError(f"the MCP configuration {str(path)!r} cannot be read: {e}") from e
        return cls(config, **kwargs)

    @classmethod
    def from_local_command(cls, server_params: Mapping[str, Any], name: str = "default", **kwargs: Any) -> MCPTool:
        """From the command of one stdio server: ``{"command": ..., "args": [...]}``."""
        return cls({"mcpServers": {name: dict(server_params)}}, **kwargs)

    @classmethod
    def from_multi_server(cls, servers: Mapping[str, str], **kwargs: Any) -> MCPTool:
        """From several URLs by name."""
        return cls({"mcpServers": {name: {"url": url} for name, url in servers.items()}}, **kwargs)

    # -- the tools --------------------------------------------------------------------------------------------

    def get_available_tools(self) -> list[dict[str, Any]]:
        """The tools of all servers: ``name``, ``description``, ``parameters`` (JSON schema), ``server``, ``tool``.

        Raises:
            ValueError: a server cannot be reached, or none has a tool.
        """
        with self._lock:
            if self._tools is None or self._pid != os.getpid():
                self._tools = self._discover()
                self._pid = os.getpid()
            return self._tools

    @property
    def call_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(tool["name"] for tool in self.get_available_tools())

    def instruction_string(self) -> str:
        lines = []
        for tool in sorted(self.get_available_tools(), key=lambda t: str(t["name"])):
            function = {k: tool[k] for k in ("name", "description", "parameters")}
            lines.append(json.dumps({"type": "function", "function": function}, ensure_ascii=False))
        listed = "\n".join(lines)
        return (
            "You can call these tools, each described by a JSON schema:\n"
            f"<tools>\n{listed}\n</tools>\n"
            "To call one, write\n"
            '<tool_call>\n{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>\n'
            "and stop; its result comes back inside <tool_response>...</tool_response>."
        )

    def find(self, action: str, start: int = 0) -> ToolCall | None:
        for call in iter_chat_calls(action, start):
            if call.error is not None or self._resolve(call.name) is not None:
                return call
        return None

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        call = self.find(action)
        if call is None:
            unknown = next(iter_chat_calls(action), None)
            if unknown is None:
                return False, True, "", ""
            text = f"Tool '{unknown.name}' not found. Available tools: {', '.join(self.call_names)}"
            return False, True, text, action[: unknown.end]
        has_error, observation = self.run(call)
        return True, has_error, observation, action[: call.end]

    def run(self, call: ToolCall) -> tuple[bool, str]:
        has_error, text = self._execute(call)
        return has_error, f"\n<tool_response>\n{text}\n</tool_response>\n"

    def close(self) -> None:
        """Ends the connections and the servers that were started. The next use opens them again."""
        with self._lock:
            if self._pid != os.getpid():  # forked: the connections are the parent's
                self._reset(keep_lock=True)
                return
            connections, self._connections, self._tools = self._connections, {}, None
        if connections:

            async def close_all() -> None:
                await asyncio.gather(*(c.close() for c in connections.values()), return_exceptions=True)

            try:
                self._loop.run(close_all(), _CLOSE_S)
            except Exception:
                logger.warning("closing the MCP connections failed", exc_info=True)
        self._loop.stop()

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_loop", "_connections", "_tools", "_lock", "_pid")
        return {k: v for k, v in super().__getstate__().items() if k not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # -- inside -----------------------------------------------------------------------------------------------

    def _reset(self, keep_lock: bool = False) -> None:
        self._loop = LoopThread("gem-mcp")
        self._connections = {}
        self._tools = None
        self._pid = os.getpid()
        if not keep_lock:
            self._lock = threading.RLock()

    def _connection(self, config: ServerConfig) -> Connection:
        """Only called in the loop's thread."""
        if config.name not in self._connections:
            self._connections[config.name] = Connection(config)
        return self._connections[config.name]

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        if self._pid != os.getpid():
            self._reset(keep_lock=True)
        return self._loop.run(coroutine, timeout)

    def _discover(self) -> list[dict[str, Any]]:
        async def list_all() -> list[list[Any] | BaseException]:
            listing = (self._connection(server).list_tools() for server in self.servers)
            return await asyncio.gather(*listing, return_exceptions=True)

        try:
            listings = self._run(list_all(), self.connect_timeout)
        except TimeoutError:
            names = ", ".join(server.describe() for server in self.servers)
            raise ValueError(f"no MCP answer within {self.connect_timeout:g} s from {names}") from None
        found: list[dict[str, Any]] = []
        for server, listing in zip(self.servers, listings, strict=True):
            if isinstance(listing, BaseException):
                raise ValueError(f"MCP connection failed: {listing}") from listing
            for tool in listing:
                found.append(
                    {
                        "name": f"{server.name}_{tool.name}" if len(self.servers) > 1 else tool.name,
                        "description": tool.description or "",
                        "parameters": tool.input_schema,
                        "server": server.name,
                        "tool": tool.name,
                    }
                )
        if not found:
            raise ValueError(f"no tools on the MCP server(s) {', '.join(s.describe() for s in self.servers)}")
        return found

    def _resolve(self, name: str) -> dict[str, Any] | None:
        tools = self.get_available_tools()
        exact = [t for t in tools if t["name"] == name]
        bare = [t for t in tools if t["tool"] == name]
        return exact[0] if exact else bare[0] if len(bare) == 1 else None

    def _execute(self, call: ToolCall) -> tuple[bool, str]:
        tool = self._resolve(call.name) if call.error is None else None
        if tool is None:
            return True, f"[Tool execution error: {call.error or f'no tool is called {call.name!r}'}]"
        config = next(s for s in self.servers if s.name == tool["server"])
        arguments = typed_arguments(call.arguments, tool["parameters"])

        async def attempt() -> Any:
            for left in reversed(range(self.max_retries)):
                try:
                    return await self._connection(config).call(tool["tool"], arguments)
                except ConnectionBrokenError as e:
                    if not left:
                        raise
                    logger.warning("MCP call failed, trying again: %s", e)
                    await asyncio.sleep(self.delay_between_retries)
            raise AssertionError("max_retries is at least 1")

        try:
            result = self._run(attempt(), self.execution_timeout)
        except TimeoutError:
            return True, f"[Tool execution failed: no answer within {self.execution_timeout:g} s]"
        except Exception as e:
            return True, f"[Tool execution failed: {e}]"
        text = result_text(result)
        return (True, f"[Tool execution error: {text}]") if result.is_error else (False, text)


def typed_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Turns strings into numbers, booleans, lists and objects where the schema asks for them: XML calls carry text."""
    properties = schema.get("properties", {})
    typed: dict[str, Any] = {}
    for key, value in arguments.items():
        kind = properties.get(key, {}).get("type") if isinstance(properties.get(key), Mapping) else None
        if isinstance(value, str) and isinstance(kind, str) and kind != "string":
            try:
                value = json.loads(value)
            except ValueError:
                low = value.strip().lower()
                value = low == "true" if low in ("true", "false") else value  # Python's spelling
        typed[key] = value
    return typed


def result_text(result: Any) -> str:
    """The content of a tool's result as text; images and sounds are named, not shown."""
    parts: list[str] = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type in ("image", "audio"):
            parts.append(f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes]")
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            parts.append(block.resource.text)
        else:
            parts.append(f"[{block.type}: {getattr(block, 'uri', getattr(block, 'resource', None))}]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)


def _check_sdk() -> None:
    try:
        from importlib.metadata import version

        import mcp  # noqa: F401
    except ModuleNotFoundError as e:
        raise ImportError("MCPTool needs the package 'mcp': pip install 'gem-adapters[mcp]'", name="mcp") from e
    if int(version("mcp").split(".")[0]) < 2:
        raise ImportError(f"MCPTool needs mcp 2 or newer, {version('mcp')} is installed: pip install 'mcp>=2'")

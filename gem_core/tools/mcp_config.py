"""Reading the configuration of MCP servers: one URL, one server, or the common ``{"mcpServers": {...}}``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Transport = Literal["stdio", "http", "sse"]

_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_KEYS = {
    "stdio": ("command", "args", "env", "cwd"),
    "http": ("url", "headers"),
    "sse": ("url", "headers"),
}
#: Keys that other MCP clients keep in the same files and that say nothing about the connection.
_IGNORED = frozenset({"transport", "type", "description", "disabled", "autoApprove", "alwaysAllow", "timeout", "icon"})


@dataclass(frozen=True)
class ServerConfig:
    """How to reach one server."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return f"{self.name!r} ({' '.join((self.command, *self.args)) if self.transport == 'stdio' else self.url})"


def read_config(
    config: str | Mapping[str, Any], auth: str | None = None, headers: Mapping[str, str] | None = None
) -> list[ServerConfig]:
    """Returns the servers of ``config``.

    Args:
        config: A URL, one server's dict, or ``{"mcpServers": {name: dict}}``. A server has ``command`` (with ``args``,
            ``env``, ``cwd``) or ``url`` (with ``headers``), and optionally ``transport``: stdio, http or sse.
        auth: Bearer token, with a URL only.
        headers: HTTP headers, with a URL only.

    Raises:
        ValueError: anything else; the message names the server and the key.
    """
    if isinstance(config, str):
        if not config.startswith(("http://", "https://")):
            raise ValueError(f"an MCP server is a http:// or https:// URL or a dict, got {config!r}")
        sent = dict(headers or {})
        if auth:
            sent["Authorization"] = f"Bearer {auth}"
        return [ServerConfig("default", "http", url=config, headers=sent)]
    if auth or headers:
        raise ValueError("auth and headers go with a URL; in a dict they are the server's 'headers'")
    if not isinstance(config, Mapping):
        raise ValueError(f"an MCP configuration is a URL or a dict, got {type(config).__name__}")
    servers = config.get("mcpServers", {"default": config})
    if not isinstance(servers, Mapping) or not servers:
        raise ValueError("'mcpServers' must name at least one server")
    return [_read_server(str(name), server) for name, server in servers.items()]


def _read_server(name: str, server: Any) -> ServerConfig:
    if not isinstance(server, Mapping):
        raise ValueError(f"MCP server {name!r} must be a dict, got {type(server).__name__}")
    named = server.get("transport", server.get("type", "stdio" if "command" in server else "http"))
    transport = _TRANSPORTS.get(str(named))
    if transport is None:
        raise ValueError(f"MCP server {name!r} has transport {named!r}; known: {', '.join(sorted(_TRANSPORTS))}")
    known = _KEYS[transport]
    for key in server:
        if key not in known and key not in _IGNORED:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f" (it takes: {', '.join(known)})"
            raise ValueError(f"MCP server {name!r} has no setting {key!r}{hint}")
    required = known[0]
    if not isinstance(server.get(required), str) or not server[required]:
        raise ValueError(f"MCP server {name!r} needs {required!r}, a non-empty string")
    values = {k: v for k, v in server.items() if k in known}
    if "args" in values:
        if isinstance(values["args"], str):
            raise ValueError(f"'args' of MCP server {name!r} must be a list of strings, got {values['args']!r}")
        values["args"] = tuple(str(a) for a in values["args"])
    for key in ("env", "headers"):
        if key in values:
            values[key] = {str(k): str(v) for k, v in dict(values[key]).items()}
    return ServerConfig(name, transport, **values)

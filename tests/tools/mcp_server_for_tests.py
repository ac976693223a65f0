"""A server with tools that behave, fail, hang and die. ``python mcp_server_for_tests.py stdio|http [PORT]``."""

from __future__ import annotations

import os
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("tests")
calls = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two whole numbers."""
    return a + b


@server.tool()
def count() -> int:
    """How often this process has been asked."""
    global calls
    calls += 1
    return calls


@server.tool()
def whoami() -> str:
    """The process and a variable of its environment."""
    return f"{os.getpid()} {os.environ.get('SECRET_FOR_SERVER', 'none')}"


@server.tool()
def fail(reason: str) -> str:
    """Raises."""
    raise ValueError(reason)


@server.tool()
async def wait(seconds: float) -> str:
    """Takes its time without holding others up."""
    import anyio

    await anyio.sleep(seconds)
    return "waited"


@server.tool()
async def hang(seconds: float) -> str:
    """Holds up the whole server."""
    time.sleep(seconds)
    return "hung"


@server.tool()
async def die() -> str:
    """Ends the process in the middle of the call."""
    os._exit(3)


@server.tool()
def flood(n: int) -> str:
    """Writes a lot."""
    return "x" * n


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))

"""Messages between a process and its sandbox: a JSON header and raw blobs, each with its length in front."""

from __future__ import annotations

import json
import socket
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not the typing module's: what a template imports, every program pays for
    from collections.abc import Sequence
    from typing import Any

_COUNT = struct.Struct("!I")
#: A message over this size is a mistake or an attack; nothing that large is sent by either side.
MAX_PART = 1 << 30


def send(
    connection: socket.socket, header: dict[str, Any], blobs: Sequence[bytes] = (), fds: Sequence[int] = ()
) -> None:
    """Sends one message; blocks until all is written (or the socket's time-out).

    Raises:
        OSError: the other side has gone.
    """
    text = json.dumps(header).encode()
    sizes = [len(text), *map(len, blobs)]
    data = struct.pack(f"!I{len(sizes)}I", len(sizes), *sizes) + text
    if fds:
        sent = socket.send_fds(connection, [data], list(fds))
        data = data[sent:]
    if sum(sizes) < 1 << 16:
        connection.sendall(data + b"".join(blobs))
        return
    connection.sendall(data)
    for blob in blobs:
        connection.sendall(blob)


def receive(connection: socket.socket, deadline: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Receives one message.

    Args:
        deadline: ``time.monotonic()`` after which TimeoutError is raised; None waits forever.

    Raises:
        EOFError: the other side has gone.
    """
    count = _COUNT.unpack(_exactly(connection, 4, deadline))[0]
    if not 1 <= count <= 1024:
        raise EOFError(f"malformed message ({count} parts)")
    sizes = struct.unpack(f"!{count}I", _exactly(connection, 4 * count, deadline))
    if sum(sizes) > MAX_PART:
        raise EOFError(f"malformed message ({sum(sizes)} bytes)")
    data = _exactly(connection, sum(sizes), deadline)
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return json.loads(parts[0]), parts[1:]


def receive_fds(connection: socket.socket, most: int) -> tuple[dict[str, Any], list[int]]:
    """As :func:`receive`, for a message without blobs that may carry file descriptors."""
    data, fds, _, _ = socket.recv_fds(connection, 1 << 16, most)
    if not data:
        raise EOFError
    while len(data) < 8 or len(data) < 8 + struct.unpack("!I", data[4:8])[0]:
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise EOFError
        data += chunk
    size = struct.unpack("!I", data[4:8])[0]
    return json.loads(data[8 : 8 + size]), fds


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)

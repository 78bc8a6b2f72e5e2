"""A tunnel through a proxy: CONNECT (RFC 9110, 9.3.6)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from services.llm_gateway.http.request import Origin

HEAD_BYTES_MAX = 16 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ?([^\r\n]{0,64})")


class ProxyRefused(OSError):
    """The proxy opened no tunnel; its text says what it answered."""


async def open_tunnel(opened: socket.socket, origin: Origin) -> None:
    """Ask the proxy at the other end of `opened` for a tunnel to `origin`.

    Raises:
        ProxyRefused: It answered with another status than 2xx, or not in HTTP.
        OSError: The connection broke.
    """
    loop = asyncio.get_running_loop()
    assert origin.route.proxy is not None
    target = f"{origin.bracketed_host}:{origin.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization := origin.route.proxy.authorization:
        lines.append(f"Proxy-Authorization: {authorization}")
    await loop.sock_sendall(opened, "\r\n".join([*lines, "", ""]).encode("latin-1"))
    head = b""
    while b"\r\n\r\n" not in head:
        # TLS begins with our own greeting, so nothing but the head can be read here.
        piece = await loop.sock_recv(opened, HEAD_BYTES_MAX)
        head += piece
        if not piece or len(head) > HEAD_BYTES_MAX:
            break
    match = _STATUS.match(head)
    if match is None:
        raise ProxyRefused("it closed the connection" if not head else "it does not speak HTTP")
    if not match[1].startswith(b"2"):
        raise ProxyRefused(f"it answered {match[1].decode()} {match[2].decode('latin-1')}".rstrip())

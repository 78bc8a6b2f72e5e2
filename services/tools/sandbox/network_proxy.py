"""Gives a command in the bubblewrap tier our proxy as its only network.

The command's namespace has only a loopback device; its supervisor listens there and hands the socket to the service.
Programs find the proxy in http_proxy and https_proxy.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import structlog

from services.runtime.net.allow_list import AllowList, parse_address

log = structlog.get_logger()

REQUEST_S = 10.0
CONNECT_S = 10.0

CONNECTIONS_MAX = 32

HEAD_BYTES_MAX = 16 * 1024
PIECE_BYTES = 64 * 1024

DEFAULT_PORT = 80


class Proxy:
    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def serve(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept_connection, sock=listener, limit=HEAD_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            # The command sees a failed connection end; no one else needs to know.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if len(self._connections) <= CONNECTIONS_MAX:
                    await self._connect_target(reader, writer)
        finally:
            writer.close()

    async def _connect_target(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_S):
            head = await reader.readuntil(b"\r\n\r\n")
        target = parse_request(head)
        if target is None:
            return await _send_refusal(
                writer, 400, "the proxy takes CONNECT host:port, or a request with a whole http:// URL"
            )
        host, port, forwarded = target
        address = parse_address(host)
        if not (self._allow.has_host(host, port) or (address and self._allow.has_address(address, port))):
            log.info("network refused", port=port)
            return await _send_refusal(writer, 403, f"{host}:{port} is not among HEADRACE_TOOLS_NETWORK_ALLOW")
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError, UnicodeError):
            return await _send_refusal(writer, 502, f"{host}:{port} cannot be reached")
        try:
            if forwarded:
                far_writer.write(forwarded)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_relay_bytes(reader, far_writer))
                group.create_task(_relay_bytes(far_reader, writer))
        except* OSError:
            pass  # one side has gone
        finally:
            far_writer.close()


def parse_request(head: bytes) -> tuple[str, int, bytes] | None:
    """Return host, port and the request to forward, empty for CONNECT; None: not a request for a proxy."""
    try:
        line, _, headers = head.decode("ascii").partition("\r\n")
        method, url, version = line.split(" ")
        parts = urlsplit(f"//{url}" if method == "CONNECT" else url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    if not host or not version.startswith("HTTP/1."):
        return None
    if method == "CONNECT":
        return (host, parts.port, b"") if parts.port else None
    if parts.scheme != "http":
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept_headers = [line for line in headers.splitlines() if line and not line.lower().startswith(HOP_BY_HOP)]
    forwarded = "\r\n".join([f"{method} {path} HTTP/1.1", *kept_headers, "Connection: close", "", ""])
    return host, port, forwarded.encode("ascii")


HOP_BY_HOP = ("connection:", "proxy-connection:", "proxy-authorization:", "keep-alive:")
"""Headers that are dropped, because a second request on a connection could name another, unchecked host."""


async def _relay_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):  # it may have gone
        writer.write_eof()


async def _send_refusal(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = f"headrace: {why}\n".encode()
    writer.write(
        f"HTTP/1.1 {status} refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    )
    await writer.drain()

"""Connections of one address without an admitted request: beyond the address's share, the oldest are closed."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from services.facade.unauthenticated import CONNECTIONS_MAX
from trials.hostile.handshakes import CROWD
from trials.hostile.http.trial import facade, following
from trials.hostile.pace import RSS_MB_MAX
from trials.hostile.trial import RUN, SECRET, Victim, is_alive

MORE = 200
TEST_TIMEOUT_S = 300.0

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What everybody may ask; whoever has asked may be silent for 75 s."""

FIRST_BYTES = [b"", b"GET /api/agents HTTP/1.1\r\nHost: local", REQUEST]
"""Of those that are to be closed: nothing, half a head, and a request. The gateway closes the first two after 10 s,
which changes nothing where they are the oldest."""


@pytest.mark.parametrize("which", ["embedded", pytest.param("gateway", marks=pytest.mark.nightly)])
async def test_connections_without_a_request_leave_room_for_others(tmp_path: Path, which: str) -> None:
    idle: list[socket.socket] = []
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(TEST_TIMEOUT_S))
        victim = await stack.enter_async_context(facade(tmp_path, which))
        own = await stack.enter_async_context(following(victim))
        known = await _connect(victim, b"GET /api/attach?runId=%b HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %b\r\n\r\n")
        rss_mb = victim.rss_mb()
        try:
            for number in range(CONNECTIONS_MAX + MORE):
                idle.append(await _connect(victim, FIRST_BYTES[number % 3] if number < MORE else REQUEST))
                if number % 100 == 0:
                    await _ask(victim)
            while (alive := sum(map(is_alive, idle))) > CONNECTIONS_MAX:
                await asyncio.sleep(0.01)
            assert alive == CONNECTIONS_MAX
            # A thread of the gateway that waits for the processor notes its connection as idle after a few later ones,
            # so that the last to be closed is not always the one of its number.
            assert all(map(is_alive, idle[2 * MORE :])), "the oldest are closed"
            assert victim.rss_mb() - rss_mb < RSS_MB_MAX
            assert is_alive(known), "a stream of the same address goes on"
            seq = await anext(own)
            assert await anext(own) == seq + 1
        finally:
            for connection in (known, *idle):
                connection.close()


async def _ask(victim: Victim) -> None:
    """Connect from another address and read an event."""
    async with following(victim) as seqs:
        assert await anext(seqs) == 1


async def _connect(victim: Victim, sent: bytes) -> socket.socket:
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setblocking(False)
    connection.bind((CROWD, 0))
    await loop.sock_connect(connection, ("127.0.0.1", victim.port))
    await loop.sock_sendall(connection, sent % (RUN.encode(), SECRET.encode()) if b"%b" in sent else sent)
    if sent.endswith(b"\r\n\r\n"):
        assert b" 200 " in await loop.sock_recv(connection, 4096)
    return connection

"""Idle connections of one address: beyond its share they are closed, and others connect.

`python -m trials soak` has 100,000.
"""

import asyncio
import os
import signal
import socket
import struct
from pathlib import Path

from hyperframe.frame import HeadersFrame

from headrace.client import Client
from services.runtime.http2.limits import ACCEPTING_MAX, DEFAULTS
from tests.support.http2.wire import PREFACE, SETTINGS, headers_of, opening, peer
from tests.support.issuing import INTERNAL
from trials.hostile.attacks import ATTACH
from trials.hostile.handshakes import CROWD
from trials.hostile.pace import RSS_MB_MAX
from trials.hostile.trial import RUN, SECRET, is_alive, victim

COUNT = int(os.environ.get("HOSTILE_CONNECTIONS", "1500"))
AT_A_TIME = 250
"""Connections made before those that were closed are looked for."""

SHARE = DEFAULTS.unauthenticated.connections_max
TEST_TIMEOUT_S = 100.0 + COUNT / 100

_NO_PORT_YET = 24
"""IP_BIND_ADDRESS_NO_PORT, which `socket` has from Python 3.12 on."""

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


async def test_idle_connections_of_one_address_leave_room_for_others(tmp_path: Path) -> None:
    idle: list[socket.socket] = []
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as one:
        rss_mb = one.rss_mb()
        try:
            for _ in range(COUNT // AT_A_TIME):
                idle += await asyncio.to_thread(lambda: [_connect(one.port) for _ in range(AT_A_TIME)])
                idle = _close_dead(idle)
                await _ask(one.port)
            while len(idle) > SHARE:
                await asyncio.sleep(0.01)
                idle = _close_dead(idle)
            assert len(idle) == SHARE
            assert one.rss_mb() - rss_mb < RSS_MB_MAX
            await _ask(one.port)
        finally:
            for connection in idle:
                connection.close()


async def test_connections_that_came_while_a_service_had_no_turn_do_not_take_one_whole(tmp_path: Path) -> None:
    waiting: list[socket.socket] = []
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as one:
        await _ask(one.port)
        cpu_s = one.cpu_s()
        one.process.send_signal(signal.SIGSTOP)
        try:
            waiting += [_connect(one.port) for _ in range(ACCEPTING_MAX - 32)]
            one.stalls_s.clear()
            one.process.send_signal(signal.SIGCONT)
            await _ask(one.port)
            said = len(one.stalls_s)
            while len(one.stalls_s) < said + 2:
                await asyncio.sleep(0.01)
        finally:
            for connection in waiting:
                connection.close()
        # A turn has its part of what all of them cost, whatever that is on this machine.
        assert max(one.stalls_s) < (one.cpu_s() - cpu_s) / 4


async def test_a_service_that_proves_itself_is_no_stranger_whoever_it_calls_for(tmp_path: Path) -> None:
    """A facade that leaves credentials to the services begins with callers who have none."""
    proof = (("x-headrace-caller", "facade"), ("x-headrace-token", INTERNAL), ("x-api-key", "wrong"))
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as one, peer(one.port) as service:
        await service.send(opening(1, headers_of("", *proof, path=ATTACH), end=True))
        await service.until(HeadersFrame)
        idle = [_connect(one.port, "127.0.0.1") for _ in range(SHARE + 1)]
        try:
            await _until_closed(idle)
            await service.send(opening(3, headers_of("", *proof, path=ATTACH), end=True))
            await service.until(HeadersFrame)
        finally:
            for connection in idle:
                connection.close()


async def _until_closed(connections: list[socket.socket]) -> None:
    """Wait until one of them was closed."""
    while all(map(is_alive, connections)):
        await asyncio.sleep(0.01)


async def _ask(port: int) -> None:
    """Connect as somebody else and read an event."""
    async with Client(f"127.0.0.1:{port}", token=SECRET) as client, client.attach(RUN) as deltas:
        assert (await anext(deltas)).seq == 1


def _connect(port: int, address: str = CROWD) -> socket.socket:
    connection = socket.socket()
    # Those that the server closes leave nothing behind: the crowd has more connections than an address has ports.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    connection.setsockopt(socket.IPPROTO_IP, _NO_PORT_YET, 1)
    connection.bind((address, 0))
    connection.connect(("127.0.0.1", port))
    connection.setblocking(False)
    connection.send(PREFACE + SETTINGS)
    return connection


def _close_dead(connections: list[socket.socket]) -> list[socket.socket]:
    """Close those that the server has closed; return the others."""
    alive: list[socket.socket] = []
    for connection in connections:
        if is_alive(connection):
            alive.append(connection)
        else:
            connection.close()
    return alive

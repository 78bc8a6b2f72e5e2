"""Idle connections of one address: those beyond its share are closed, and others can connect.

`python -m trials soak` opens 100,000.
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
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as server:
        rss_mb = server.rss_mb()
        try:
            for _ in range(COUNT // AT_A_TIME):
                idle += await asyncio.to_thread(lambda: [_connect(server.port) for _ in range(AT_A_TIME)])
                idle = _close_dead(idle)
                await _ask(server.port)
            while len(idle) > SHARE:
                await asyncio.sleep(0.01)
                idle = _close_dead(idle)
            assert len(idle) == SHARE
            assert server.rss_mb() - rss_mb < RSS_MB_MAX
            await _ask(server.port)
        finally:
            for connection in idle:
                connection.close()


async def test_connections_accepted_after_a_pause_do_not_fill_a_whole_loop_turn(tmp_path: Path) -> None:
    waiting: list[socket.socket] = []
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as server:
        await _ask(server.port)
        cpu_s = server.cpu_s()
        server.process.send_signal(signal.SIGSTOP)
        try:
            waiting += [_connect(server.port) for _ in range(ACCEPTING_MAX - 32)]
            server.stalls_s.clear()
            server.process.send_signal(signal.SIGCONT)
            await _ask(server.port)
            stalls_before = len(server.stalls_s)
            while len(server.stalls_s) < stalls_before + 2:
                await asyncio.sleep(0.01)
        finally:
            for connection in waiting:
                connection.close()
        # One loop turn takes only a part of the CPU time that all connections cost on this machine.
        assert max(server.stalls_s) < (server.cpu_s() - cpu_s) / 4


async def test_an_authenticated_service_is_no_unauthenticated_peer_whatever_its_caller(tmp_path: Path) -> None:
    """A facade that leaves authentication to the services also forwards callers without credentials."""
    proof = (("x-headrace-caller", "facade"), ("x-headrace-token", INTERNAL), ("x-api-key", "wrong"))
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2") as server, peer(server.port) as service:
        await service.send(opening(1, headers_of("", *proof, path=ATTACH), end=True))
        await service.until(HeadersFrame)
        idle = [_connect(server.port, "127.0.0.1") for _ in range(SHARE + 1)]
        try:
            await _until_closed(idle)
            await service.send(opening(3, headers_of("", *proof, path=ATTACH), end=True))
            await service.until(HeadersFrame)
        finally:
            for connection in idle:
                connection.close()


async def _until_closed(connections: list[socket.socket]) -> None:
    """Wait until one of the connections is closed."""
    while all(map(is_alive, connections)):
        await asyncio.sleep(0.01)


async def _ask(port: int) -> None:
    """Connect from another address and read an event."""
    async with Client(f"127.0.0.1:{port}", token=SECRET) as client, client.attach(RUN) as deltas:
        assert (await anext(deltas)).seq == 1


def _connect(port: int, address: str = CROWD) -> socket.socket:
    connection = socket.socket()
    # A closed connection must free its port at once: there are more connections than an address has ports.
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

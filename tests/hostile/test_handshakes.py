"""TLS handshakes: an address is charged for each one in advance, and no peer can make one expensive."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from headrace.client import Client
from headrace.tls import Tls
from services.runtime.http2.limits import DEFAULTS, Limits, UnauthenticatedLimits
from services.runtime.http2.server.unauthenticated import UnauthenticatedConnections
from services.runtime.process.transport import Certificates
from tests.support.authority import Authority, Files
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, Caller
from tests.support.http2.victim import OTHER, service
from tests.support.http2.victim import victim as server_of
from trials.hostile.handshakes import CROWD, attack, make_greeting
from trials.hostile.pace import CPU_S_PER_CONNECTION, OTHER_WORK, find_stall_s_max
from trials.hostile.trial import RUN, SECRET, victim

BEGUN, MORE = 10, 5
LIMITS = Limits(unauthenticated=UnauthenticatedLimits(handshake_s=1.0, burst_s=BEGUN - 0.5, processor_share=1e-9))
"""Nothing else that these tests do costs half a second, and nothing is earned."""

TEST_TIMEOUT_S = 200.0


def mutual(files: Files) -> Certificates:
    return Certificates(files.cert, files.key, files.ca)


def opening(port: int, files: Files) -> Channel:
    return Channel(f"127.0.0.1:{port}", message_bytes_max=BYTES_MAX, context=mutual(files).get_client_context)


async def connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.bind((CROWD, 0))
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return connection


async def is_answered(connection: socket.socket, greeting: bytes) -> bool:
    """Return whether the server continues the handshake."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, greeting)
        return await loop.sock_recv(connection, 1) == b"\x16"  # its own part of the handshake, and no alert
    except ConnectionError:
        return False


async def test_an_address_over_its_share_starts_no_handshake_but_others_do(authority: Authority) -> None:
    context = mutual(authority.issue("memory")).make_server_context()
    async with server_of(LIMITS, knows_callers=True, context=context) as server:
        crowd = [await connect(server.port) for _ in range(BEGUN + MORE)]
        try:
            answered = [await is_answered(connection, make_greeting()) for connection in crowd]
        finally:
            for connection in crowd:
                connection.close()
        assert answered == [True] * BEGUN + [False] * MORE
        async with opening(server.port, authority.issue("facade")) as channel:
            assert await Caller(channel).unary(b"still there") == b"still there"


async def test_an_admitted_call_refunds_its_addresss_handshake(authority: Authority) -> None:
    async def admit(_: bytes, context: Any) -> bytes:
        context.note_admitted()
        return b""

    context = mutual(authority.issue("memory")).make_server_context()
    async with server_of(LIMITS, knows_callers=True, context=context) as server:
        server.server.add_generic_rpc_handlers([service(admit=grpc.unary_unary_rpc_method_handler(admit))])
        for _ in range(BEGUN + MORE):
            async with opening(server.port, authority.issue("facade")) as channel:
                call: Any = channel.unary_unary(f"/{OTHER}/admit")
                assert await call(b"") == b""


@pytest.fixture(scope="module")
def dear_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=4096)


async def test_a_handshakes_cost_above_its_reservation_is_charged(
    authority: Authority, dear_key: rsa.RSAPrivateKey
) -> None:
    """A signature with such a key takes more than 50 µs; charging only the reservation of 1 µs would allow 50,000."""
    limits = Limits(unauthenticated=UnauthenticatedLimits(handshake_s=1e-6, burst_s=0.05, processor_share=1e-9))
    context = mutual(authority.issue("memory", key=dear_key)).make_server_context()
    greeting, started = make_greeting("prime256v1"), 0
    async with asyncio.timeout(TEST_TIMEOUT_S), server_of(limits, knows_callers=True, context=context) as server:
        is_let = True
        while is_let:
            with await connect(server.port) as connection:
                is_let = await is_answered(connection, greeting)
            started += is_let
    assert started < 1000


def test_an_address_is_charged_for_each_handshake_step_above_its_reservation() -> None:
    unauthenticated, peer, other = (
        UnauthenticatedConnections(LIMITS.unauthenticated),
        ("127.0.0.1", 1),
        ("127.0.0.2", 1),
    )
    handshake = unauthenticated.begin_handshake(peer)
    assert handshake is not None
    handshake.note_step(0.5)
    assert handshake.charged_s == LIMITS.unauthenticated.handshake_s
    handshake.note_step(BEGUN)
    assert handshake.charged_s == BEGUN + 0.5
    assert unauthenticated.begin_handshake(peer) is None
    assert unauthenticated.begin_handshake(other) is not None
    unauthenticated.spend_time(peer, -handshake.charged_s)
    assert unauthenticated.begin_handshake(peer) is not None


async def test_expensive_key_exchanges_are_refused(authority: Authority) -> None:
    """ffdhe8192 costs a server 160 ms, and a client that requests it only the 1.3 kB it repeats."""
    context = mutual(authority.issue("memory")).make_server_context()
    async with server_of(LIMITS, knows_callers=True, context=context) as server:
        for group, is_taken in (("prime256v1", True), ("ffdhe2048", False), ("ffdhe8192", False)):
            with await connect(server.port) as connection:
                assert await is_answered(connection, make_greeting(group)) is is_taken, group


@pytest.mark.parametrize("is_dear", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["P-256", "RSA-4096"])
async def test_endless_handshakes_do_not_disturb_an_honest_stream(
    tmp_path: Path, authority: Authority, dear_key: rsa.RSAPrivateKey, is_dear: bool
) -> None:
    files, own = (
        authority.issue("orchestrator", key=dear_key if is_dear else None),
        authority.issue("cli", workload=x509.DNSName("cli")),
    )
    tls = Tls(files.ca, own.cert, own.key)
    share, loop = DEFAULTS.unauthenticated, asyncio.get_running_loop()
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, "h2", files) as server:
        client = Client(f"127.0.0.1:{server.port}", token=SECRET, tls=tls)
        async with client, client.attach(RUN) as deltas:
            before, cpu_s = (await anext(deltas)).seq, server.cpu_s()
            server.stalls_s.clear()
            began_s = loop.time()
            attacking = asyncio.create_task(attack(server.port))
            while not attacking.done():
                seq = (await anext(deltas)).seq
                assert seq == before + 1
                before = seq
            answered, refused = attacking.result()
            elapsed_s, cpu_s = loop.time() - began_s, server.cpu_s() - cpu_s
            allowed_s = share.burst_s + share.processor_share * elapsed_s
        assert answered <= allowed_s / share.handshake_s + 1
        assert refused > 0
        assert cpu_s < 0.2 + OTHER_WORK * elapsed_s + allowed_s + (answered + refused) * CPU_S_PER_CONNECTION
        assert max(server.stalls_s) < find_stall_s_max()

"""An address's share of connections, bytes, calls and time, on a server that admits no calls."""

import struct
from itertools import count

import pytest
from h2.errors import ErrorCodes
from hpack import Encoder
from hyperframe.frame import GoAwayFrame, HeadersFrame, SettingsFrame

from services.runtime.calls.addresses import find_network
from services.runtime.http2.limits import TABLE_BLOCKS_MAX, WINDOW_BYTES, Limits, UnauthenticatedLimits
from tests.support.http2.ends import BYTES_MAX
from tests.support.http2.victim import victim
from tests.support.http2.wire import DATA, END_HEADERS, HEADERS, Peer, call, headers_of, message, opening, peer, raw

CALM = ErrorCodes.ENHANCE_YOUR_CALM
LARGE = b"\0" + struct.pack(">L", BYTES_MAX) + b"x" * (16 * 1024 - 5)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host: str, network: str) -> None:
    assert find_network(host) == network


async def serve(client: Peer, stream_id: int) -> None:
    """Fail unless the connection is open and serves a call."""
    await client.send(call(stream_id, "unary"))
    await client.until(HeadersFrame)


@pytest.mark.parametrize(
    "limits",
    [Limits(unauthenticated=UnauthenticatedLimits(connections_max=2)), Limits(connections_max=2)],
    ids=["share", "server"],
)
async def test_the_longest_silent_connection_is_closed_for_a_new_one(limits: Limits) -> None:
    async with victim(limits, knows_callers=True) as server, peer(server.port) as first, peer(server.port) as second:
        await serve(second, 1)
        await serve(first, 1)
        async with peer(server.port) as third:
            assert await second.closed() is None
            await serve(first, 3)
            await serve(third, 1)


async def test_an_unauthenticated_request_gets_only_one_window() -> None:
    async with victim(Limits(), knows_callers=True) as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("unary")), *[raw(DATA, 0, 1, LARGE)] * (WINDOW_BYTES // len(LARGE)))
        await client.pong()
        assert not [frame for frame in client.seen if frame.stream_id]


async def test_buffered_bytes_are_bounded_across_an_addresss_connections() -> None:
    limits = Limits(unauthenticated=UnauthenticatedLimits(bytes_max=200_000))
    async with victim(limits, knows_callers=True) as server:
        async with peer(server.port) as first, peer(server.port) as second:
            await first.send(opening(1, headers_of("unary")), *[raw(DATA, 0, 1, LARGE)] * 4)
            await first.pong()
            await second.send(*(opening(n, headers_of("unary")) for n in range(1, 21, 2)))
            assert await second.closed() is CALM
            await serve(first, 3)
        await server.idle()


@pytest.mark.parametrize("confirms", [True, False])
async def test_header_table_entries_are_refused_once_our_settings_are_known(*, confirms: bool) -> None:
    """An honest peer knows our settings once it confirms them; a peer that never does gets only so many blocks."""
    encoder = Encoder()
    blocks = (encoder.encode(headers_of("unary", ("key", "value"))) for _ in count())
    taken = 0
    async with victim(Limits(), knows_callers=True) as server, peer(server.port) as client:
        while not any(isinstance(frame, GoAwayFrame) for frame in client.seen):
            stream_id = 2 * taken + 1
            await client.send(raw(HEADERS, END_HEADERS, stream_id, next(blocks)), message(stream_id, b""))
            await client.pong()
            taken += 1
            if confirms:
                await client.send(SettingsFrame(0, flags=["ACK"]).serialize())
    assert taken - 1 == (1 if confirms else TABLE_BLOCKS_MAX)

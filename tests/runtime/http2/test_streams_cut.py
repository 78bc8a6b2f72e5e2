"""However the bytes of a connection are cut into reads, the same messages arrive, in both directions."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.http2.server.server import Server
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, Stack, channel, handlers, serving
from tests.support.http2.wire import PREFACE, SETTINGS, headers_of, message, opening, window

BODIES = st.lists(st.binary(max_size=300) | st.sampled_from([b"", b"x" * 16_379, b"y" * 20_000]), max_size=6)
CUTS = st.lists(st.integers(1, 200) | st.sampled_from([1, 5, 9, 14, 24, 1000, 16_384]), min_size=1, max_size=30)
"""Sizes of the pieces, used repeatedly."""


def cut_into_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut `data` into pieces of these sizes, used repeatedly."""
    found: list[bytes] = []
    start = 0
    while start < len(data):
        size = max(cuts[len(found) % len(cuts)], len(data) // 200)
        found.append(data[start : start + size])
        start += size
    return found


@asynccontextmanager
async def feeding(server: Server) -> AsyncGenerator[Any]:
    """Yield a connection of `server` that the test feeds by hand, because a socket does not cut as required."""
    connection: Any = server.make_connection()
    ours, theirs = socket.socketpair()
    with theirs:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)
        yield connection


@given(bodies=st.lists(BODIES, min_size=1, max_size=4), cuts=CUTS)
def test_a_server_receives_the_same_messages_for_any_cut(bodies: list[list[bytes]], cuts: list[int]) -> None:
    asyncio.run(_server_gets(bodies, cuts))


async def _server_gets(bodies: list[list[bytes]], cuts: list[int]) -> None:
    received: dict[bytes, list[bytes]] = {}
    ended = asyncio.Event()

    async def upload(requests: Any, context: Any) -> bytes:
        name = dict(context.invocation_metadata())["name"].encode()
        received[name] = [request async for request in requests]
        if len(received) == len(bodies):
            ended.set()
        return b""

    sent = [PREFACE, SETTINGS, window(0, 1000)]
    for number, body in enumerate(bodies):
        stream_id = 2 * number + 1
        sent.append(opening(stream_id, headers_of("upload", ("name", str(number))), end=not body))
        sent += [
            _data(stream_id, item, end=item is body[-1] and index == len(body) - 1) for index, item in enumerate(body)
        ]
    server = Server(message_bytes_max=BYTES_MAX)
    handlers(upload=upload)(server)
    async with asyncio.timeout(TEST_TIMEOUT_S), feeding(server) as connection:
        for piece in cut_into_pieces(b"".join(sent), cuts):
            connection.data_received(piece)
            await asyncio.sleep(0)
        await ended.wait()
    await server.stop(None)
    assert received == {b"%d" % number: body for number, body in enumerate(bodies)}


def _data(stream_id: int, body: bytes, *, end: bool) -> bytes:
    """Return a message in frames of at most 16 KiB."""
    whole = message(stream_id, body, end=end)
    if len(whole) <= 16_384 + 9:
        return whole
    payload = whole[9:]
    first = len(payload) - 16_384
    return _frame(stream_id, payload[:first], 0) + _frame(stream_id, payload[first:], int(end))


def _frame(stream_id: int, payload: bytes, flags: int) -> bytes:
    return len(payload).to_bytes(3) + bytes([0, flags]) + stream_id.to_bytes(4) + payload


@asynccontextmanager
async def cutting(address: str, cuts: Sequence[int]) -> AsyncGenerator[str]:
    """Run a proxy that forwards the bytes in pieces; yield the address of the server through it."""
    host, _, port = address.rpartition(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_cut: bool) -> None:
        try:
            while data := await reader.read(65_536):
                for piece in cut_into_pieces(data, cuts) if is_cut else [data]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            return
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        async with asyncio.TaskGroup() as group:
            group.create_task(forward(reader, upstream_writer, is_cut=False))
            group.create_task(forward(upstream_reader, writer, is_cut=True))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        yield f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("server", ["ours", "grpcio"])
@pytest.mark.parametrize("cuts", [[1], [9, 1, 5], [7, 100, 3, 16_384], [16_393, 2]], ids=str)
async def test_a_channel_receives_the_same_messages_for_any_cut(server: Stack, cuts: list[int]) -> None:
    bodies = [b"", b"a", b"b" * 200, b"", b"c" * 20_000, b"d"]

    async def stream(request: bytes, context: Any) -> Any:
        for body in bodies:
            yield body

    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving(server, handlers(stream=stream)) as (_, address),
        cutting(address, cuts) as proxy_address,
        channel("ours", proxy_address) as over,
    ):
        calls = [Caller(over).stream(b"") for _ in range(3)]
        for call in calls:
            assert [body async for body in call] == bodies

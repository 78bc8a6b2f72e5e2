"""Header blocks that are read without h2: each means the same to h2 and to us, and we can read all that we write."""

import asyncio
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, ResponseReceived, TrailersReceived
from hpack import Decoder
from hyperframe.frame import HeadersFrame
from hypothesis import example, given
from hypothesis import strategies as st

from services.runtime.calls.metadata import STATUS_MESSAGE_BYTES_MAX, Headers
from services.runtime.http2 import limits
from services.runtime.http2.header_blocks import (
    NO_TABLE,
    encode_block,
    is_oversized,
    read_answer,
    read_request,
    read_trailers,
)
from tests.support.http2.ends import SERVICE, SILENCE_S, Stack, connecting, handlers
from tests.support.http2.victim import victim
from tests.support.http2.wire import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, message, peer, raw

REQUEST: Headers = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.B/C"),
    (b":authority", b"localhost:1"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
ANSWER: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]

NAMES = st.from_regex(rb"[a-z0-9_.-]{1,130}", fullmatch=True)
VALUES = st.from_regex(rb"([!-~]([ -~]{0,300}[!-~])?)?", fullmatch=True)
MORE = st.lists(st.tuples(NAMES, VALUES), max_size=20)

ODD_NAMES = st.sampled_from(
    [*b"te host content-length connection cookie Upper :path :status :x a:b".split(), b"", b"a b", b"\xff"]
)
ODD_VALUES = st.sampled_from(
    [b"", b" a", b"a ", b"\ta", b"a\nb", b"\0", b"\xff", b"\x7f", b"trailers", b"200", b"8", b"x" * 127]
)
ODD = st.lists(st.tuples(ODD_NAMES | NAMES, ODD_VALUES | VALUES), max_size=6)


def read_with_h2(block: bytes, *, by_server: bool, behind: bytes = b"") -> Headers | None:
    """Return how h2 reads a block in a HEADERS frame, or None if it refuses it. After another block (`behind`) it is
    read as trailers.
    """
    connection = H2Connection(H2Configuration(client_side=not by_server, header_encoding=None))
    connection.initiate_connection()
    if by_server:
        connection.receive_data(PREFACE + SETTINGS)
    else:
        connection.receive_data(SETTINGS)
        connection.send_headers(1, REQUEST)
    if behind:
        connection.receive_data(raw(HEADERS, END_HEADERS, 1, behind))
    try:
        events = connection.receive_data(raw(HEADERS, END_HEADERS | (END_STREAM if behind else 0), 1, block))
    except Exception:
        return None
    kinds = (RequestReceived, ResponseReceived, TrailersReceived)
    return next((event.headers for event in events if isinstance(event, kinds)), None)


@given(MORE)
def test_all_decoders_read_what_we_encode(more: Headers) -> None:
    block = encode_block(REQUEST + more)
    assert Decoder(limits.HEADERS_BYTES_TAKEN_MAX).decode(NO_TABLE + block, raw=True) == REQUEST + more
    # A name that is longer than any of ours is left to h2.
    assert read_request(block) in (REQUEST + more, None)
    special = {b"te", b"host", b"content-length", b"cookie"}
    if all(len(name) < 127 for name, _ in more) and dict(more).keys().isdisjoint(special):
        assert read_request(block) == REQUEST + more
        assert read_answer(encode_block(ANSWER + more)) == ANSWER + more
        assert read_trailers(encode_block(more)) == more


@given(ODD, ODD)
@example([], [(b"host", b"other")])
@example([], [(b"te", b"gzip")])
@example([(b"a", b"b")], [])
@example([], [(b"cookie", b"a=1"), (b"cookie", b"b=2")])
def test_a_block_we_read_means_the_same_to_h2(before: Headers, behind: Headers) -> None:
    request = encode_block(before + REQUEST + behind)
    if (headers := read_request(request)) is not None:
        assert read_with_h2(request, by_server=True) == headers == before + REQUEST + behind
    response = encode_block(before + ANSWER + behind)
    if (headers := read_answer(response)) is not None:
        assert read_with_h2(response, by_server=False) == headers
    trailers = encode_block(before + behind)
    if (headers := read_trailers(trailers)) is not None:
        assert read_with_h2(trailers, by_server=False, behind=encode_block(ANSWER)) == headers


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 200))
@example([(0, 0x82)], 0)
@example([(2, 0x50)], 0)
def test_a_block_of_any_bytes_means_the_same_to_h2(changes: list[tuple[int, int]], cut: int) -> None:
    block = bytearray(encode_block([*REQUEST, (b"long", b"x" * 130)]))
    for position, byte in changes:
        block[position % len(block)] = byte
    data = bytes(block[: len(block) - cut])
    if (headers := read_request(data)) is not None:
        assert read_with_h2(data, by_server=True) == headers


@pytest.mark.parametrize("count", [300, 488, 489, 1500, 3000])
def test_the_size_limit_of_a_header_list_is_that_of_h2(count: int) -> None:
    more = [(b"a", b"")] * count
    size = sum(len(name) + len(value) + 32 for name, value in REQUEST + more)
    block = encode_block(REQUEST + more)
    assert (read_request(block) is not None) == (size <= limits.HEADERS_BYTES_MAX)
    assert is_oversized(block, limits.HEADERS_BYTES_MAX) == (size > limits.HEADERS_BYTES_MAX)
    size = sum(len(name) + len(value) + 32 for name, value in ANSWER + more)
    assert (read_answer(encode_block(ANSWER + more)) is not None) == (size <= limits.HEADERS_BYTES_TAKEN_MAX)


@given(MORE, st.integers(0, 2000))
def test_the_size_of_a_block_is_computed_as_that_of_its_list(more: Headers, bytes_max: int) -> None:
    headers = REQUEST + more
    size = sum(len(name) + len(value) + 32 for name, value in headers)
    assert is_oversized(encode_block(headers), bytes_max) == (size > bytes_max)


@pytest.mark.parametrize("server", ["ours", "grpcio"])
async def test_metadata_too_large_for_the_server_fails_only_its_call(server: Stack) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return request

    async def stream(request: bytes, context: Any) -> Any:
        yield b"one"
        await asyncio.sleep(SILENCE_S)

    async with connecting("ours", server, handlers(unary=unary, stream=stream)) as caller:
        other_call = caller.stream(b"")
        await other_call.read()
        for entry in (("key", "x" * 16_300), ("long" * 40, "x" * 16_300)):
            refused = caller.unary(b"", metadata=(entry,))
            assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await caller.unary(b"a", metadata=(("key", "x" * 6_000),)) == b"a"
        assert not other_call.done()
        other_call.cancel()


@pytest.mark.parametrize("size", [15_000, 16_000, 40_000])
async def test_too_large_metadata_of_a_foreign_client_ends_only_its_call(size: int) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return request

    async def stream(request: bytes, context: Any) -> Any:
        yield b"one"
        await asyncio.sleep(SILENCE_S)

    async with connecting("grpcio", "ours", handlers(unary=unary, stream=stream)) as caller:
        other_call = caller.stream(b"")
        await other_call.read()
        refused = caller.unary(b"", metadata=(("key", "x" * size),))
        assert await refused.code() is (grpc.StatusCode.OK if size == 15_000 else grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert await caller.unary(b"a") == b"a"
        assert not other_call.done()
        other_call.cancel()


@pytest.mark.parametrize("size", [100, 127, 16_000, 16_384, 40_000])
async def test_headers_of_any_size_pass_between_our_client_and_server(size: int) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        sent = dict(context.invocation_metadata())["key"]
        assert sent == "x" * min(int(request), 16_000)
        sent = "x" * int(request)
        await context.send_initial_metadata((("first", sent),))
        context.set_trailing_metadata((("last", sent),))
        return request

    async with connecting("ours", "ours", handlers(unary=unary)) as caller:
        for _ in range(2):  # the first block of a connection announces that there is no table
            call = caller.unary(b"%d" % size, metadata=(("key", "x" * min(size, 16_000)),))
            assert await call == b"%d" % size
            assert dict(await call.initial_metadata())["first"] == "x" * size
            assert dict(await call.trailing_metadata())["last"] == "x" * size


async def test_the_reserved_bit_of_a_stream_id_is_ignored() -> None:
    request = encode_block([*REQUEST[:2], (b":path", f"/{SERVICE}/unary".encode()), *REQUEST[3:]])
    async with victim() as server, peer(server.port) as client:
        await client.send(raw(HEADERS, END_HEADERS, 2**31 + 1, request), message(1, b"x"))
        assert (await client.until(HeadersFrame)).stream_id == 1


@pytest.mark.parametrize("client", ["ours", "grpcio"])
@pytest.mark.parametrize("details", [" bad ", "  ", "x" * 2047 + " and more", "x" * 2045 + "  é"])
async def test_a_status_message_may_start_and_end_with_spaces(client: Stack, details: str) -> None:
    async def unary(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, details, (("key", " spaced "),))

    async def stream(request: bytes, context: Any) -> Any:
        yield b"one"
        await asyncio.sleep(SILENCE_S)

    async with connecting(client, "ours", handlers(unary=unary, stream=stream)) as caller:
        other_call = caller.stream(b"")
        await other_call.read()
        call = caller.unary(b"")
        assert await call.code() is grpc.StatusCode.ABORTED
        assert (await call.details()) == details[:STATUS_MESSAGE_BYTES_MAX].removesuffix("é")
        assert dict(await call.trailing_metadata())["key"] == "spaced"
        assert not other_call.done()
        other_call.cancel()

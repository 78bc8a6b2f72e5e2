"""What a call transfers besides its messages: metadata, statuses and refusals; between our client and server and
grpcio's.
"""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from headrace.errors import NotFound, from_rpc_error, to_status
from tests.support.http2.ends import BYTES_MAX, Stack, between, code_of, connecting, handlers

METADATA = (
    ("text", "a value, with ~ and  spaces"),
    ("raw-bin", bytes(range(256))),
    ("raw-bin", b""),
    ("twice", "1"),
    ("twice", "2"),
    ("with_all-of.them-0", "x"),
)
KEYS = {key for key, _ in METADATA}

MESSAGE = "héllo 水 🧭 100 % + a/b?\nsecond line\x7f"


def select_sent(metadata: Any) -> list[tuple[str, Any]]:
    """Return the pairs that a test has sent, in order within a key."""
    return sorted(((key, value) for key, value in metadata if key in KEYS), key=lambda pair: pair[0])


async def read(call: Any, into: list[bytes]) -> None:
    async for message in call:
        into.append(message)


@between
async def test_metadata_is_transferred_in_all_three_places(client: Stack, server: Stack) -> None:
    received: list[Any] = []

    async def stream(request: bytes, context: Any) -> Any:
        received.extend(context.invocation_metadata())
        await context.send_initial_metadata(METADATA)
        yield b"answer"
        context.set_trailing_metadata(METADATA)

    async with connecting(client, server, handlers(stream=stream)) as caller:
        call = caller.stream(b"", metadata=METADATA)
        initial = await call.initial_metadata()
        assert [message async for message in call] == [b"answer"]
        trailing = await call.trailing_metadata()
    expected = select_sent(METADATA)
    assert [select_sent(pairs) for pairs in (received, initial, trailing)] == [expected] * 3


@between
async def test_initial_metadata_arrives_before_the_first_message(client: Stack, server: Stack) -> None:
    go_on = asyncio.Event()

    async def stream(request: bytes, context: Any) -> Any:
        await context.send_initial_metadata((("text", "early"),))
        await go_on.wait()
        yield b"late"

    async with connecting(client, server, handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        assert select_sent(await call.initial_metadata()) == [("text", "early")]
        go_on.set()
        assert await call.read() == b"late"


@between
@pytest.mark.parametrize("before", [0, 2])
async def test_an_error_arrives_after_the_preceding_messages(client: Stack, server: Stack, before: int) -> None:
    async def stream(request: bytes, context: Any) -> Any:
        for _ in range(before):
            yield b"x"
        await context.abort(grpc.StatusCode.DATA_LOSS, MESSAGE, (("text", "why"),))

    messages: list[bytes] = []
    async with connecting(client, server, handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(call, messages)
        assert (await call.code(), await call.details()) == (grpc.StatusCode.DATA_LOSS, MESSAGE)
    error = caught.value
    assert messages == [b"x"] * before
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, MESSAGE)
    assert select_sent(error.trailing_metadata()) == [("text", "why")]


@between
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK], ids=str)
async def test_a_unary_call_fails_with_the_code_of_its_abort(
    client: Stack, server: Stack, code: grpc.StatusCode
) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        await context.abort(code, MESSAGE)
        return b""

    async with connecting(client, server, handlers(unary=unary)) as caller:
        call = caller.unary(b"")
        # For CANCELLED grpcio cancels the caller.
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call
        assert (await call.code(), await call.details()) == (code, MESSAGE)


@between
async def test_the_details_of_our_errors_are_transferred(client: Stack, server: Stack) -> None:
    status = to_status(NotFound("no such chat", chatId="c1"))

    async def unary(request: bytes, context: Any) -> bytes:
        details = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(NotFound.code, status.message, details)
        return b""

    async with connecting(client, server, handlers(unary=unary)) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.unary(b"")
    error = from_rpc_error(caught.value)
    assert isinstance(error, NotFound)
    assert (error.message, error.metadata) == ("no such chat", {"chatId": "c1"})


@between
async def test_large_error_details_are_transferred(client: Stack, server: Stack) -> None:
    packed = AnyMessage()
    packed.Pack(error_details_pb2.DebugInfo(detail="x" * 3000))
    details = status_pb2.Status(code=code_pb2.ABORTED, message="x", details=[packed]).SerializeToString()

    async def unary(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.ABORTED, "x" * 1000, (("grpc-status-details-bin", details),))
        return b""

    async with connecting(client, server, handlers(unary=unary)) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.unary(b"")
    assert dict(caught.value.trailing_metadata())["grpc-status-details-bin"] == details


@between
async def test_a_handler_can_set_a_code_without_raising(client: Stack, server: Stack) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
        context.set_details("not yet")
        return b""

    async with connecting(client, server, handlers(unary=unary)) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.unary(b"")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not yet")


@between
@pytest.mark.parametrize("method", ["/test.Test/none", "/no.Such/unary", "/", "/x"])
async def test_an_unknown_method_is_unimplemented(client: Stack, server: Stack, method: str) -> None:
    async with connecting(client, server, handlers()) as caller:
        assert await code_of(caller.channel.unary_unary(method)(b"")) is grpc.StatusCode.UNIMPLEMENTED


@between
async def test_a_message_over_the_limit_ends_only_its_call(client: Stack, server: Stack) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return b"x" * int(request or b"0")

    async with connecting(client, server, handlers(unary=unary)) as caller:
        for request in (b"x" * (BYTES_MAX + 1), b"%d" % (BYTES_MAX + 1)):
            assert await code_of(caller.unary(request)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(await caller.unary(b"%d" % BYTES_MAX)) == BYTES_MAX


@between
async def test_a_handler_can_read_the_peer_address(client: Stack, server: Stack) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return context.peer().encode()

    async with connecting(client, server, handlers(unary=unary)) as caller:
        where = "local:" if server in ("local", "queued") else "ipv4:127.0.0.1:"
        assert (await caller.unary(b"")).decode().startswith(where)

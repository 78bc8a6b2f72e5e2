"""The frame path of our transport: whatever bytes a peer sends, at worst its connection ends.

The first byte of an input selects the end that reads it and the sizes of the pieces; the rest follows a proper
greeting, unless the byte disables it. Handlers and callers are real, the socket is not.
"""

import asyncio
from typing import Any

import grpc
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import Frame
from structlog.testing import capture_logs

from services.runtime.calls.call_kinds import UnaryStreamCall, UnaryUnaryCall
from services.runtime.calls.client_call import Call, Method
from services.runtime.http2.client_connection import ClientConnection
from services.runtime.http2.connection import Connection
from services.runtime.http2.frames import HEAD_BYTES, PREFACE_BYTES
from services.runtime.http2.header_blocks import encode_block
from services.runtime.http2.limits import DEFAULTS, FRAME_BYTES_MAX
from services.runtime.http2.server.server import Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes(3) + b"\4" + bytes(5)

CLIENT, BARE = 0x80, 0x40
STEPS = 0x3F
"""Bits of the first byte: read by the client's end; without a greeting; size of the pieces, 0 for the whole input."""

HEADERS = encode_block([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/b"), (b":authority", b"c")])

MESSAGE_BYTES_MAX = 1000
TURNS = 5
"""Turns of the loop after which everything started and cancelled has ended."""


def check(data: bytes) -> None:
    """Feed the input to a connection, then close it."""
    if data:
        asyncio.run(_check(data[0], data[1:]))


async def _check(how: int, data: bytes) -> None:
    bugs: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
    with capture_logs() as logged:
        await (_client(how, data) if how & CLIENT else _server(how, data))
    assert not bugs, bugs
    assert all(line["log_level"] in ("debug", "info") for line in logged), logged


class Socket(asyncio.Transport):
    """A socket that accepts everything; full after `room` bytes."""

    def __init__(self, protocol: Connection, room: int = 50_000) -> None:
        super().__init__()
        self.protocol, self.room = protocol, room
        self.written = bytearray()
        self.is_closed = False
        self.may_read = asyncio.Event()
        self.may_read.set()

    def write(self, data: Any) -> None:
        assert not self.is_closed, "written after the end"
        if len(self.written) < self.room <= len(self.written) + len(data):
            self.protocol.pause_writing()
        self.written += data

    def get_write_buffer_size(self) -> int:
        return max(len(self.written) - self.room, 0)

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
        self.may_read.set()

    abort = close


async def _server(how: int, data: bytes) -> None:
    server = Server(message_bytes_max=MESSAGE_BYTES_MAX)
    server.add_generic_rpc_handlers([_Handlers()])
    connection = server.make_connection()
    socket = Socket(connection)
    connection.connection_made(socket)
    await _feed(connection, socket, data if how & BARE else PREFACE + SETTINGS + data, how)
    connection.connection_lost(None)
    await _turns()
    assert not connection.calls, "a handler continues"
    _whole(bytes(socket.written))


async def _client(how: int, data: bytes) -> None:
    connection = ClientConnection(
        MESSAGE_BYTES_MAX, DEFAULTS, _ignore, _ignore, _ignore, scheme=b"http", authority=b"c"
    )
    socket = Socket(connection)
    connection.connection_made(socket)
    kinds = (UnaryUnaryCall, UnaryStreamCall)
    calls: list[Call] = [kind(Method("/a/b", None, None, _not_again), [], None) for kind in kinds]
    for call in calls:
        call.request = b"request"  # pyright: ignore[reportAttributeAccessIssue] - of kinds that have one
        connection.open_call(call)
    await _feed(connection, socket, data if how & BARE else SETTINGS + data, how)
    connection.connection_lost(None)
    await _turns()
    assert all(call.done() for call in calls), "a call continues"
    _whole(bytes(socket.written)[PREFACE_BYTES:])


def _ignore(*_: object) -> None:
    """Ignore the connection's callbacks to its channel."""


def _not_again(call: Call) -> bool:
    return False


async def _feed(connection: Connection, socket: Socket, data: bytes, how: int) -> None:
    step = how & STEPS or len(data) or 1
    for start in range(0, len(data), step):
        if socket.is_closed:
            return
        connection.data_received(data[start : start + step])
        await asyncio.sleep(0)
        await socket.may_read.wait()
        held = len(connection.incoming.rest)
        assert held < HEAD_BYTES + FRAME_BYTES_MAX, f"{held} bytes are held"
    await _turns()


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _whole(written: bytes) -> None:
    """Check that the output consists of whole, valid frames."""
    rest = memoryview(written)
    while rest:
        try:
            frame, length = Frame.parse_frame_header(rest[:HEAD_BYTES])
            assert len(rest) >= HEAD_BYTES + length, "half a frame was sent"
            frame.parse_body(rest[HEAD_BYTES : HEAD_BYTES + length])
        except HyperframeError as error:
            raise AssertionError("a wrong frame was sent") from error
        rest = rest[HEAD_BYTES + length :]


class _Handlers(grpc.GenericRpcHandler):
    """Handlers of each kind, by the last letter of the path."""

    def service(self, handler_call_details: Any) -> Any:
        return {
            "u": grpc.unary_unary_rpc_method_handler(_unary),
            "s": grpc.unary_stream_rpc_method_handler(_stream),
            "c": grpc.stream_unary_rpc_method_handler(_upload),
            "b": grpc.stream_stream_rpc_method_handler(_both),
        }.get(handler_call_details.method[-1:])


async def _unary(request: bytes, context: Any) -> bytes:
    return request


async def _stream(request: bytes, context: Any) -> Any:
    for _ in range(100):
        yield request + b"x" * 1000


async def _upload(requests: Any, context: Any) -> bytes:
    return b"".join([request async for request in requests])


async def _both(requests: Any, context: Any) -> Any:
    async for request in requests:
        yield request

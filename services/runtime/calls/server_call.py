"""One call for its handler: grpc.aio's ServicerContext over one stream."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog

from services.runtime.calls.ends import CallStream, Compressed, Deadline, Oversized, ServerEnd
from services.runtime.calls.metadata import Headers, Pairs, ServerStatus, to_headers, to_pairs

FindHandler: TypeAlias = "Callable[[], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]"
RESPONSE_HEADERS: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TURN_MESSAGES = 64
"""Answers written in a row before other tasks get a turn."""

LATE = grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed"

REFUSALS = frozenset(
    {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED}
)

log = structlog.get_logger()


class ServerCall(grpc.aio.ServicerContext[Any, Any]):
    """One RPC: its task runs the handler and sends the status."""

    _handler: grpc.RpcMethodHandler[Any, Any]

    def __init__(
        self, connection: ServerEnd, stream: CallStream, method: str, metadata: Pairs, timeout_s: float | None
    ) -> None:
        self.method = method
        self._connection = connection
        self._stream = stream
        self._metadata = tuple(metadata)
        self._deadline = None if timeout_s is None else Deadline(timeout_s, self._fail_call, *LATE)
        self._initial: Pairs = []
        self._status = ServerStatus()
        self._is_aborted = False
        self._has_ended = False
        self._callbacks: list[Callable[[Any], None]] = []
        self.has_begun = False
        """Whether anything has been sent to the client."""
        self.sent = 0
        """Messages sent."""
        self._turn_messages = 0
        """Messages written since the handler last waited."""
        self._task: asyncio.Task[None] | None = None
        """None before the handler begins and after it ends: the exception that ended it may hold all of its frames."""
        self._is_done = False

    # Life cycle.

    def start_handler(self, find: FindHandler) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run_and_finish(find))
        self._task.add_done_callback(self._on_task_done)

    async def _run_and_finish(self, find: FindHandler) -> None:
        try:
            handler = await find()
            if handler is None:
                self._fail_call(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {self.method}")
                return
            self._handler = handler
            request = self._read_requests() if handler.request_streaming else await self._read_request()
            if handler.response_streaming:
                await self._stream_answers(handler, request)
            else:
                serve: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
                answer = await serve(request, self)
                if self._status.code is grpc.StatusCode.OK:
                    serialize = handler.response_serializer
                    self._send_status(serialize(answer) if serialize is not None else answer)
            if self._stream.is_local_open:
                await self.wait_until_drained()
        except grpc.aio.AbortError:
            await self.wait_until_drained()
        except Exception:
            log.exception("rpc failed", method=self.method)
            self._status.code, self._status.details = grpc.StatusCode.INTERNAL, "internal error"
        if not self._has_ended:
            self._send_status()

    async def _stream_answers(self, handler: grpc.RpcMethodHandler[Any, Any], request: Any) -> None:
        serve: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
        answers = serve(request, self)
        if inspect.isawaitable(answers):
            await answers
            return
        async with aclosing(answers):
            async for answer in answers:
                await self.write(answer)

    def _on_task_done(self, _: asyncio.Task[None]) -> None:
        self._task, self._is_done = None, True
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._has_ended:
            # Neither the client nor the deadline cancelled it: the server is stopping.
            self._status.code, self._status.details = grpc.StatusCode.UNAVAILABLE, "the server is stopping"
            self._send_status()
        self._connection.on_call_end(self._stream.id)
        for callback in self._callbacks:
            callback(self)

    def _send_status(self, message: bytes | None = None) -> None:
        """End the call, with `message` as the last answer."""
        if self._has_ended:
            return
        self._has_ended = True
        if not self._stream.is_local_open:
            return
        initial = None if self.has_begun else self._initial
        self.has_begun = True
        if message is not None:
            self.sent += 1
        self._connection.finish_stream(self._stream, initial, message, self._status)

    def _fail_call(self, code: grpc.StatusCode, details: str) -> None:
        if not self._has_ended:
            self._status.code, self._status.details = code, details
            self._send_status()
        # A failed call does not wait for a window that may never open.
        if self._stream.is_local_open:
            self._connection.cancel_stream(self._stream.id)
        self.cancel_handler()

    def fail_cut(self) -> None:
        self._fail_call(grpc.StatusCode.INTERNAL, "the request ended in the middle of a message")

    def fail_unreadable(self, error: Oversized | Compressed) -> None:
        if isinstance(error, Oversized):
            limit = self._stream.message_bytes_max
            self._fail_call(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a message is larger than {limit} bytes")
        else:
            self._status.trailing.append(("grpc-accept-encoding", "identity"))
            self._fail_call(grpc.StatusCode.UNIMPLEMENTED, "compressed messages are not taken")

    def on_hang_up(self) -> None:
        self._has_ended = True
        self._status.code = grpc.StatusCode.CANCELLED
        self.cancel_handler()

    def cancel_handler(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def is_refused(self) -> bool:
        """Whether the call was refused: not permitted, or no such method."""
        return self._status.code in REFUSALS

    def note_admitted(self) -> None:
        """Record that the call is permitted, or that a service has proved itself: the peer is no stranger."""
        self._connection.note_admitted()
        self._stream.lift_bound()

    def is_foreign_user(self) -> bool:
        """Whether the caller is another user of this machine."""
        return self._connection.is_foreign_user

    # Incoming messages.

    async def _read_request(self) -> Any:
        stream = self._stream
        if stream.is_ended and len(stream.inbox) == 1:
            return await self._decode_request(stream.pop_message())
        wait_s = self._connection.request_s
        late = f"the request did not come within {wait_s:.0f} s"
        timer = asyncio.get_running_loop().call_later(wait_s, self._fail_call, grpc.StatusCode.CANCELLED, late)
        try:
            await self._stream.wait_for_message()
            message = self._stream.pop_message() if self._stream.inbox else None
            # Read to the end: a client that sends a second message gets no service.
            await self._stream.wait_for_message()
        finally:
            timer.cancel()
        # INTERNAL, as in grpc-go and grpc-java (https://github.com/grpc/grpc-go/pull/8385). UNIMPLEMENTED, as in gRPC's
        # table of codes, would suggest an older server that lacks the method.
        if message is None:
            await self.abort(grpc.StatusCode.INTERNAL, "the request has no message")
        if self._stream.inbox:
            await self.abort(grpc.StatusCode.INTERNAL, "the request has more than one message")
        return await self._decode_request(message)

    async def _read_requests(self) -> AsyncGenerator[Any]:
        while (request := await self.read()) is not grpc.aio.EOF:
            yield request

    async def read(self) -> Any:
        await self._stream.wait_for_message()
        return await self._decode_request(self._stream.pop_message()) if self._stream.inbox else grpc.aio.EOF

    async def _decode_request(self, message: bytes) -> Any:
        deserialize = self._handler.request_deserializer
        if deserialize is None:
            return message
        try:
            return deserialize(message)
        except Exception:
            # Any exception of the deserializer is caused by the client's bytes.
            await self.abort(grpc.StatusCode.INTERNAL, "the request is not a message of its type")

    # Outgoing messages.

    def send(self, message: bytes) -> bool:
        """Send a serialized message; False if `wait_until_drained` is due."""
        if not self.has_begun:
            self._send_headers()
        self.sent += 1
        return self._stream.send(message)

    async def wait_until_drained(self) -> None:
        await self._stream.wait_until_drained()

    async def __aenter__(self) -> ServerCall:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self._stream.wait_until_drained()

    async def write(self, message: Any) -> None:
        self._turn_messages += 1
        serialize = self._handler.response_serializer
        if not self.send(serialize(message) if serialize is not None else message):
            self._turn_messages = 0
            await self._stream.wait_until_drained()
        elif self._turn_messages >= TURN_MESSAGES:
            self._turn_messages = 0
            await asyncio.sleep(0)

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        if self.has_begun:
            raise grpc.aio.UsageError("the initial metadata has been sent already")
        self._initial = to_pairs(initial_metadata)
        self._send_headers()

    def _send_headers(self) -> None:
        self.has_begun = True
        if self._stream.is_local_open:
            self._connection.send_headers(self._stream.id, RESPONSE_HEADERS + to_headers(self._initial))

    # Methods for handlers.

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        if not self._is_aborted:  # the first abort counts, as in grpcio
            self._is_aborted = True
            self._status.code, self._status.details = code, details
            if trailing_metadata:
                self._status.trailing = to_pairs(trailing_metadata)
        raise grpc.aio.AbortError

    async def abort_with_status(self, status: Any) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self._status.trailing = to_pairs(trailing_metadata)

    def trailing_metadata(self) -> Any:
        return tuple(self._status.trailing)

    def invocation_metadata(self) -> Any:
        return self._metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self._status.code = code

    def code(self) -> Any:
        return self._status.code

    def set_details(self, details: str) -> None:
        self._status.details = details

    def details(self) -> Any:
        return self._status.details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Do nothing, because messages are never compressed."""

    def disable_next_message_compression(self) -> None:
        """Do nothing, because messages are never compressed."""

    def peer(self) -> str:
        return self._connection.peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return self._connection.read_peer_identity()

    def peer_identity_key(self) -> str | None:
        context = self.auth_context()
        return next((key for key in ("x509_subject_alternative_name", "x509_common_name") if key in context), None)

    def peer_identities(self) -> Iterable[bytes] | None:
        key = self.peer_identity_key()
        return self.auth_context()[key] if key else None

    def time_remaining(self) -> Any:
        return None if self._deadline is None else self._deadline.remaining_s

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self._status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        return self._is_done

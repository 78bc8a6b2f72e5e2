"""Server-Sent Events: frames are written as they arrive.

The answer starts with the first frame or after `heartbeat_s`; an earlier failure is a JSON answer with its
status. A stream that breaks later ends without `[DONE]` because the run may be alive. A last frame `error`
reports that the caller's credential has ended (middleware/request_lifecycle.py).

Nothing is buffered for a client that stops reading: it is disconnected after `slow_reader_s`, and its run continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
from aiohttp import web

from headrace.errors import CredentialEnded, Interrupted
from headrace.v1 import agent_pb2, common_pb2
from services.facade.metrics import OPEN_STREAMS
from services.facade.responses import envelope, stream_errors
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.stream_errors import ErrorEncoder
from services.runtime.formats.json_form import Event, encode, event
from services.runtime.rpc.push_stream import Watches, pipe_messages, push_messages

T = TypeVar("T")

CALL_END_TIMEOUT_S = 1.0
"""Maximum wait for the end of the call after its run has ended."""

DONE = b"data: [DONE]\n\n"


async def stream_run(
    request: web.Request, asked: Any, call: grpc.aio.UnaryStreamCall[Any, bytes], timeouts: StreamTimeouts
) -> web.StreamResponse:
    """Answer `request` with the stream of `call`, which yields messages as bytes; the call is cancelled in
    every case.
    """

    def encode_failure(failure: common_pb2.Failure) -> bytes:
        end = stream_errors.build_run_error(asked, failure)
        return b"" if end is None or (sent := event(end)) is None else _encode_frame(sent) + DONE

    writer = FrameWriter(request, timeouts)
    return await send_stream(writer, _pipe_events(call, writer), encode_failure)


async def stream_messages(
    request: web.Request,
    call: grpc.aio.UnaryStreamCall[Any, bytes],
    decode: Callable[[bytes], Any],
    timeouts: StreamTimeouts,
    watches: Watches,
) -> web.StreamResponse:
    """Answer `request` with each message of `call` as a frame, until either side ends it or the facade stops."""
    writer = FrameWriter(request, timeouts)

    async def write_all() -> None:
        async with watches.following():
            await push_messages(call, write_message, writer.wait_until_drained)

    def write_message(message: bytes) -> bool:
        decoded = decode(message)
        cursor: str = getattr(decoded, "cursor", "")  # set for events of a followed chat
        head = b"id: %b\n" % cursor.encode() if cursor else b""
        return writer.send_frame(b"%bevent: message\ndata: %b\n\n" % (head, encode(decoded)))

    return await send_stream(writer, write_all(), lambda _: b"")


async def send_frames(
    request: web.Request,
    items: AsyncIterator[T],
    make_frames: Callable[[T], Iterable[bytes]],
    encode_failure: ErrorEncoder,
    timeouts: StreamTimeouts,
    *,
    tells_breaks: bool = False,
) -> web.StreamResponse:
    """Answer `request` with the frames of `items`, which the caller closes; `send_stream` describes how failures are
    sent.
    """
    writer = FrameWriter(request, timeouts)

    async def write_all() -> None:
        async for item in items:
            for frame in make_frames(item):
                if not writer.send_frame(frame):
                    await writer.wait_until_drained()

    # A task, because each frame would otherwise pass through every coroutine from here up to aiohttp's own.
    sending = asyncio.create_task(write_all())
    return await send_stream(writer, sending, encode_failure, tells_breaks=tells_breaks)


async def send_stream(
    writer: FrameWriter, sending: Awaitable[None], encode_failure: ErrorEncoder, *, tells_breaks: bool = False
) -> web.StreamResponse:
    """Answer with the frames that `sending` writes.

    A failure before the first frame is raised, or written if the answer has started. A later failure is written
    only if the protocol `tells_breaks`.
    """
    OPEN_STREAMS.inc()
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(writer.watch_silence())
            try:
                await sending
            except Exception as error:
                is_due = writer.response.prepared and (tells_breaks or not writer.has_frames)
                is_gone = isinstance(error, ConnectionError)
                failure = envelope.describe_error(error)
                # The end of the caller's credential is not a failure of the run, so a last frame reports it.
                is_key = failure.code == CredentialEnded.reason and not tells_breaks
                if is_due and not is_gone and not is_key and (frame := encode_failure(failure)):
                    await writer.write_frame(frame)
                raise
            await writer.wait_until_drained()
            watching.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    finally:
        OPEN_STREAMS.dec()
    return writer.response


class _EventSink:
    """Writes each delta as a frame, and `[DONE]` after the end of the run."""

    def __init__(self, writer: FrameWriter, ending: asyncio.Timeout) -> None:
        self.is_over = False
        self._writer = writer
        self._ending = ending
        self.wait_until_drained = writer.wait_until_drained

    def send(self, message: bytes) -> bool:
        sent = event(agent_pb2.AgentDelta.FromString(message))
        if sent is None or self.is_over:
            return True
        frame = _encode_frame(sent)
        if sent.is_terminal:
            self.is_over = True
            frame += DONE
            # Logs and metrics would count leaving before the end of the call as a cancellation.
            self._ending.reschedule(asyncio.get_running_loop().time() + CALL_END_TIMEOUT_S)
        return self._writer.send_frame(frame)


async def _pipe_events(call: grpc.aio.UnaryStreamCall[Any, bytes], writer: FrameWriter) -> None:
    ending = asyncio.timeout(None)
    sink = _EventSink(writer, ending)
    try:
        async with ending:
            await pipe_messages(call, sink)
    except TimeoutError:
        if not ending.expired():
            raise
    if sink.is_over:
        return
    if writer.has_frames:
        raise Interrupted("the run's stream ended before the run did")
    # The caller attached after the run's last event.
    await writer.write_frame(DONE)


def _encode_frame(sent: Event) -> bytes:
    return b"id: %d\nevent: message\ndata: %b\n\n" % (sent.seq, sent.json)

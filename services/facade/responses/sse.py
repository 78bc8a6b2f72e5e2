"""Server-Sent Events: frames written as they come, with comments during silence.

The answer begins with the first frame, or after `heartbeat_s`; an earlier failure is a JSON answer with its status. A
stream that breaks later ends without `[DONE]`, since the run may be alive.

Nothing is buffered for a client that stops reading: after `slow_reader_s` it is disconnected, while its run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from aiohttp import web

from headrace.errors import Interrupted
from headrace.streams import reading
from headrace.v1 import agent_pb2, common_pb2
from services.facade.metrics import OPEN_STREAMS
from services.facade.responses import envelope, stream_errors
from services.facade.responses.stream_errors import ErrorEncoder
from services.runtime.json_form import Event, event

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}

CALL_END_TIMEOUT_S = 1.0
"""Longest wait for the end of a call whose run has ended."""

HEARTBEAT = b": heartbeat\n\n"
DONE = b"data: [DONE]\n\n"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    heartbeat_s: float
    """Silence after which a comment is sent, so that proxies keep the stream open."""

    slow_reader_s: float
    """Longest wait of a write before the client is disconnected."""


async def stream_run(
    request: web.Request, asked: Any, call: grpc.aio.UnaryStreamCall[Any, agent_pb2.AgentDelta], pace: StreamTimeouts
) -> web.StreamResponse:
    """Answer `request` with the stream of `call`, which is cancelled in every case."""

    def words(failure: common_pb2.Failure) -> bytes:
        end = stream_errors.build_run_error(asked, failure)
        return b"" if end is None or (sent := event(end)) is None else _encode_frame(sent) + DONE

    async with reading(call) as deltas, aclosing(_encode_frames(deltas)) as frames:
        return await send_frames(request, frames, words, pace)


async def send_frames(
    request: web.Request, frames: AsyncGenerator[bytes], words: ErrorEncoder, pace: StreamTimeouts
) -> web.StreamResponse:
    """Answer `request` with whole `frames`, which the caller closes.

    A failure before the first frame is raised, or sent in `words` if the answer has begun.
    """
    OPEN_STREAMS.inc()
    try:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_read_first(frames))
            await asyncio.wait({first}, timeout=pace.heartbeat_s)
            if first.done() and isinstance(error := first.result(), Exception):
                raise error
            writer = _FrameWriter(request, web.StreamResponse(headers=HEADERS), pace)
            await writer.response.prepare(request)
            watching = group.create_task(writer.watch_silence())
            frame = await first
            if isinstance(frame, Exception):
                if told := words(envelope.describe_error(frame)):
                    await writer.write_frame(told)
                raise frame
            if frame:
                await writer.write_frame(frame)
                async for frame in frames:
                    await writer.write_frame(frame)
            watching.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    finally:
        OPEN_STREAMS.dec()
    return writer.response


class _FrameWriter:
    """Writes whole frames to one response; two tasks share it."""

    def __init__(self, request: web.Request, response: web.StreamResponse, pace: StreamTimeouts) -> None:
        self.response = response
        self._request = request
        self._pace = pace
        self._now = asyncio.get_running_loop().time
        self._last_s = self._now()
        self._writes = 0
        """Number of writes blocked by a client that does not read."""

    async def write_frame(self, frame: bytes) -> None:
        self._last_s = self._now()
        self._writes += 1
        await self.response.write(frame)
        self._writes -= 1

    async def watch_silence(self) -> None:
        """Write heartbeats; disconnect a client that stopped reading."""
        pace = self._pace
        while True:
            wait_s = self._last_s + (pace.slow_reader_s if self._writes else pace.heartbeat_s) - self._now()
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, pace.slow_reader_s))
            elif self._writes:
                log.info("slow reader dropped", slow_reader_s=pace.slow_reader_s)
                if self._request.transport is not None:
                    self._request.transport.abort()
                raise ConnectionResetError
            else:
                await self.write_frame(HEARTBEAT)


async def _encode_frames(deltas: AsyncIterator[agent_pb2.AgentDelta]) -> AsyncGenerator[bytes]:
    """Yield a frame per delta, and `[DONE]` when the run has ended."""
    has_any = False
    async for delta in deltas:
        has_any = True
        sent = event(delta)
        if sent is None:
            continue
        yield _encode_frame(sent)
        if sent.is_terminal:
            yield DONE
            # Leaving before the call has ended would count as a cancellation in logs and metrics.
            with suppress(TimeoutError):
                async with asyncio.timeout(CALL_END_TIMEOUT_S):
                    await anext(deltas, None)
            return
    if has_any:
        raise Interrupted("the run's stream ended before the run did")
    # The caller attached after the run's last event.
    yield DONE


def _encode_frame(sent: Event) -> bytes:
    return b"id: %d\nevent: message\ndata: %b\n\n" % (sent.seq, sent.json)


async def _read_first(frames: AsyncIterator[bytes]) -> bytes | Exception | None:
    """Return the first frame or the failure; None when there is none."""
    try:
        return await anext(frames, None)
    except Exception as error:
        # A value: a task that fails would have its group cancel the one that is to tell of it.
        return error

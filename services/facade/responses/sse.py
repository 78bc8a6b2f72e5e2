"""Server-Sent Events: frames written the moment they come, with comments in between, to a client that reads them.

The answer begins with the first frame, or after `heartbeat_s` without one (a run that waits, or waits to begin): what
fails before is a JSON answer with its status, and what fails between is told in a frame of its own (late.py). A stream
that breaks behind its first frame simply ends, without `[DONE]`: the run may well live, so a made-up run.error would
be a lie; the caller attaches again after its last id. Nothing is sent after the end of a run but `data: [DONE]`, which
says that there is nothing to come back for.

Nothing is kept for a client that stops reading: its stream is not read on, and after `slow_reader_s` it is hung up on,
while its run goes on.
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
"""For a call whose run has ended."""

HEARTBEAT = b": heartbeat\n\n"
DONE = b"data: [DONE]\n\n"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Timeouts of a stream."""

    heartbeat_s: float
    """A stream that was silent for so long gets a comment, so that proxies keep it open."""

    slow_reader_s: float
    """A client that let a write wait for so long is hung up on."""


async def stream_run(
    request: web.Request, asked: Any, call: grpc.aio.UnaryStreamCall[Any, agent_pb2.AgentDelta], pace: StreamTimeouts
) -> web.StreamResponse:
    """Answer `request` with what `call` streams, which has `asked` for it. However this is left, it is cancelled."""

    def words(failure: common_pb2.Failure) -> bytes:
        end = stream_errors.build_run_error(asked, failure)
        return b"" if end is None or (sent := event(end)) is None else _encode_frame(sent) + DONE

    async with reading(call) as deltas, aclosing(_encode_frames(deltas)) as frames:
        return await send_frames(request, frames, words, pace)


async def send_frames(
    request: web.Request, frames: AsyncGenerator[bytes], words: ErrorEncoder, pace: StreamTimeouts
) -> web.StreamResponse:
    """Answer `request` with `frames`, each of them whole; closing them is the caller's.

    What fails instead of the first one is raised, and told in `words` if the answer has begun.
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
    """Writes to one response. Two tasks share it; each write is a whole frame."""

    def __init__(self, request: web.Request, response: web.StreamResponse, pace: StreamTimeouts) -> None:
        self.response = response
        self._request = request
        self._pace = pace
        self._now = asyncio.get_running_loop().time
        self._last_s = self._now()
        """When the last write began, in the loop's time."""
        self._writes = 0
        """Writes that have not returned because the client has not read what came before."""

    async def write_frame(self, frame: bytes) -> None:
        """Write a frame; waits while the client does not read."""
        self._last_s = self._now()
        self._writes += 1
        await self.response.write(frame)
        self._writes -= 1

    async def watch_silence(self) -> None:
        """Write a comment whenever nothing was written for `heartbeat_s`; hang up on a client that stopped reading."""
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
    """Every delta, and `[DONE]` when the run has ended; Interrupted when only the stream has."""
    has_any = False
    async for delta in deltas:
        has_any = True
        sent = event(delta)
        if sent is None:
            continue
        yield _encode_frame(sent)
        if sent.is_terminal:
            yield DONE
            await _await_end(deltas)
            return
    if has_any:
        raise Interrupted("the run's stream ended before the run did")
    # The caller attached after the run's last event.
    yield DONE


def _encode_frame(sent: Event) -> bytes:
    return b"id: %d\nevent: message\ndata: %b\n\n" % (sent.seq, sent.json)


async def _await_end(deltas: AsyncIterator[agent_pb2.AgentDelta]) -> None:
    """Let the call end by itself: to leave it a moment before would be a cancellation, in logs and metrics."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CALL_END_TIMEOUT_S):
            await anext(deltas, None)


async def _read_first(frames: AsyncIterator[bytes]) -> bytes | Exception | None:
    """The first frame, or what has failed instead; None: there is none."""
    try:
        return await anext(frames, None)
    except Exception as error:
        # A value: a task that fails would have its group cancel the one that is to tell of it.
        return error

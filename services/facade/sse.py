"""A run as Server-Sent Events: one frame for each delta, written the moment it comes.

The answer begins with the first event, or after `heartbeat_s` without one (attaching to a run that waits): what
fails before is a JSON answer with its status. A stream that breaks later simply ends, without `[DONE]`: the run may
well live, so a made-up run.error would be a lie; the caller attaches again after its last id. Nothing is sent
after the end of a run but `data: [DONE]`, which says that there is nothing to come back for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from aiohttp import web

from headrace.errors import Interrupted
from headrace.json_form import event
from headrace.streams import reading
from headrace.v1 import agent_pb2

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
HEARTBEAT = b": heartbeat\n\n"
DONE = b"data: [DONE]\n\n"


async def stream(
    request: web.Request, call: grpc.aio.UnaryStreamCall[Any, agent_pb2.AgentDelta], heartbeat_s: float
) -> web.StreamResponse:
    """Answer `request` with what `call` streams. However this is left, the call is cancelled."""
    async with reading(call) as deltas:
        try:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(_next(deltas))
                await asyncio.wait({first}, timeout=heartbeat_s)
                sent = _Sent(web.StreamResponse(headers=HEADERS))
                await sent.response.prepare(request)
                beating = group.create_task(sent.beat(heartbeat_s))
                await sent.copy(await first, deltas)
                beating.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
    return sent.response


class _Sent:
    """What one response has been sent. Two tasks write to it, each write a whole frame."""

    def __init__(self, response: web.StreamResponse) -> None:
        self.response = response
        self._now = asyncio.get_running_loop().time
        self._last_s = self._now()

    async def copy(self, first: agent_pb2.AgentDelta | None, deltas: AsyncIterator[agent_pb2.AgentDelta]) -> None:
        """Write every delta, and `[DONE]` when the run has ended; raise Interrupted when only the stream has."""
        if first is None or await self._is_last(first):
            # None at all: the caller attached after the run's last event.
            await self.response.write(DONE)
            return
        async for delta in deltas:
            if await self._is_last(delta):
                await self.response.write(DONE)
                return
        raise Interrupted("the run's stream ended before the run did")

    async def beat(self, heartbeat_s: float) -> None:
        """Write a comment whenever nothing was written for `heartbeat_s`, until cancelled."""
        while True:
            wait_s = self._last_s + heartbeat_s - self._now()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            else:
                self._last_s = self._now()
                await self.response.write(HEARTBEAT)

    async def _is_last(self, delta: agent_pb2.AgentDelta) -> bool:
        """Write one delta and return whether it ends the run."""
        sent = event(delta)
        if sent is None:
            return False
        self._last_s = self._now()
        await self.response.write(b"id: %d\nevent: message\ndata: %b\n\n" % (sent.seq, sent.json))
        return sent.is_terminal


async def _next(deltas: AsyncIterator[agent_pb2.AgentDelta]) -> agent_pb2.AgentDelta | None:
    """The next delta; None at the end."""
    return await anext(deltas, None)

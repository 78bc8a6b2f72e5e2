"""Plays actions on an open response: paced writes, silence, and ways to break off.

A frame repeated for load is encoded once, with HTTP's chunk framing, and written by the loop's timer straight to the
transport, because a benchmark shares the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import hdrs, web

from services.simulator.script import Cut, End, Stall, Wait

AT_ONCE = 64
"""Frames per write without a pace; more would only fill the reader's socket."""

WAITING_BYTES_MAX = 1 << 16
"""Bytes in the transport above which frames wait: the reader has stopped reading."""


@dataclass(frozen=True, slots=True)
class RepeatedFrame:
    data: bytes
    times: int
    pace_ms: float
    """Time before each write, in milliseconds."""


Action = bytes | RepeatedFrame | Wait | Stall | Cut | End
"""An action of any protocol; bytes are one write."""


async def play_actions(
    request: web.Request, response: web.StreamResponse, actions: Iterable[Action], *, one_byte_writes: bool
) -> None:
    """Write the actions to a prepared `response`, which the caller ends.

    Waits follow a schedule, so that slow writes do not change the pace.
    """
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for action in actions:
        match action:
            case bytes():
                await _write(response, action, one_byte_writes=one_byte_writes)
            case RepeatedFrame():
                due_s = await write_repeated(request, response, action, due_s)
            case Wait(wait_ms=wait_ms):
                due_s += wait_ms / 1000
                # A wait of zero yields to the loop too, so that frames without a pace still leave one by one.
                await asyncio.sleep(max(due_s - loop.time(), 0))
            case Stall():
                await asyncio.Event().wait()
            case Cut():
                if request.transport is not None:
                    request.transport.abort()
                return
            case End():
                return


async def _write(response: web.StreamResponse, data: bytes, *, one_byte_writes: bool) -> None:
    if not one_byte_writes:
        await response.write(data)
        return
    for at in range(len(data)):
        await response.write(data[at : at + 1])
        await asyncio.sleep(0)


async def write_repeated(
    request: web.Request, response: web.StreamResponse, repeated: RepeatedFrame, due_s: float
) -> float:
    """Write all frames; `due_s` is the time of the previous write, the result that of the last."""
    pace_s = repeated.pace_ms / 1000
    if not pace_s:
        for done in range(0, repeated.times, AT_ONCE):
            await response.write(repeated.data * min(AT_ONCE, repeated.times - done))
            await asyncio.sleep(0)  # other streams get their turn, however fast this one is read
        return due_s
    # The first is written by aiohttp, because headers may wait to be sent with it.
    await asyncio.sleep(max(due_s + pace_s - asyncio.get_running_loop().time(), 0))
    await response.write(repeated.data)
    if repeated.times > 1 and request.transport is not None:
        is_chunked = hdrs.TRANSFER_ENCODING in response.headers
        data = b"%x\r\n%s\r\n" % (len(repeated.data), repeated.data) if is_chunked else repeated.data
        await _PacedWriter(request.transport, data, repeated.times - 1, pace_s).write_all(due_s + 2 * pace_s)
    return due_s + repeated.times * pace_s


class _PacedWriter:
    """Writes on the loop's timers; belongs to one request."""

    __slots__ = ("_data", "_due_s", "_left", "_loop", "_pace_s", "_timer", "_transport", "_written")

    def __init__(self, transport: asyncio.WriteTransport, data: bytes, times: int, pace_s: float) -> None:
        self._transport = transport
        self._data = data
        self._left = times
        self._pace_s = pace_s
        self._due_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def write_all(self, due_s: float) -> None:
        """Return when all is written; a client that leaves cancels this."""
        self._timer = self._loop.call_at(due_s, self._write_next)
        self._due_s = due_s
        try:
            await self._written
        finally:
            self._timer.cancel()

    def _write_next(self) -> None:
        if self._transport.is_closing():
            return  # the cancellation will follow
        if self._transport.get_write_buffer_size() <= WAITING_BYTES_MAX:
            self._transport.write(self._data)
            self._left -= 1
        if not self._left:
            self._written.set_result(None)
            return
        self._due_s += self._pace_s
        self._timer = self._loop.call_at(self._due_s, self._write_next)

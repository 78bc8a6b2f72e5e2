"""Plays actions on an open response: writes at their pace, silence, and ways to break off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.simulator.playback.repeated_frames import RepeatedFrame, write_repeated
from services.simulator.scripts.steps import Cut, End, Stall, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

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

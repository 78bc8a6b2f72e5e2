"""A user who watches waiting gates, and reopens the stream whenever it breaks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading, rpc_errors
from headrace.v1 import gates_pb2

if TYPE_CHECKING:
    from trials.simulation.people.asked import Shown
    from trials.simulation.people.person import Person

AGAIN_S, CALL_S, PAGE = 0.5, 20.0, 200


async def watch_gates(user: Person, until: asyncio.Event) -> None:
    """Keep `user.watched` up to date with the stream."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(user))
        await until.wait()
        watching.cancel()


async def _watch(user: Person) -> None:
    while True:
        with suppress(HeadraceError, grpc.aio.AioRpcError):
            await _follow(user)
        await asyncio.sleep(AGAIN_S)


async def _follow(user: Person) -> None:
    listed: Shown | None = None
    async with reading(user.gates.WatchGates(gates_pb2.WatchGatesRequest(scope="tenant"))) as updates:
        async for news in updates:
            match news.WhichOneof("event"):
                case "list_begin":
                    listed = {}
                case "list_end":
                    user.watched = listed or {}
                    listed = None
                case _ if news.gate.state != "open" and user.world.bug == "lost closing":
                    continue
                case _:
                    _show(user.watched if listed is None else listed, news.gate)


def _show(shown: Shown, gate: gates_pb2.Gate) -> None:
    if gate.state == "open":
        shown[gate.run_id, gate.gate_id] = tuple(gate.voters)
    else:
        shown.pop((gate.run_id, gate.gate_id), None)


async def list_waiting(user: Person) -> Shown | None:
    """Return the answer of ListGates; None if there is none."""
    shown: Shown = {}
    request = gates_pb2.ListGatesRequest(scope="tenant", page_size=PAGE)
    with suppress(HeadraceError, grpc.aio.AioRpcError), rpc_errors():
        for gate in (await user.gates.ListGates(request, timeout=CALL_S)).gates:
            _show(shown, gate)
        return shown
    return None

"""One replay, from the cassette's query to its last line.

A cassette may have custom modes: Python code, which runs with the permissions of the user who replays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import grpc

from headrace.cassette.lines import Cassette
from headrace.cassette.methods import load_request
from headrace.v1 import agent_pb2
from services.orchestrator.ids import RUN_IDS
from services.orchestrator.peers.recorder import LISTENER
from services.replay.conductor import Conductor, ReplayClock, ReplayLoop
from services.replay.heard import Difference, Heard
from services.replay.house import House, find_identity, opening_house, serve
from services.replay.scripted_peers import ScriptedCalls, answer_setup_calls, serving_peers
from services.runtime.auth.identity import acting_as
from services.runtime.clock import CLOCK
from services.runtime.local.network import NETWORK, LocalNetwork

OnEvent = Callable[[agent_pb2.AgentDelta], object]


def replay(cassette: Cassette, *, speed: float = 0.0, stop_at: int = 0, on_event: OnEvent = lambda event: None) -> int:
    """Replay a cassette in a separate event loop; return the number of its last event.

    `speed` is a multiple of the recorded pace; 0 never waits. Raises Difference.
    """
    with asyncio.Runner(loop_factory=ReplayLoop) as runner:
        # Clock, network and ids are those of this replay alone.
        return runner.run(_replay(cassette, speed, stop_at, on_event), context=copy_context())


async def _replay(cassette: Cassette, speed: float, stop_at: int, on_event: OnEvent) -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ReplayLoop), "a replay has a loop of its own"
    heard, clock = Heard(), ReplayClock(loop, cassette.header["at"])
    calls = ScriptedCalls(heard, answer_setup_calls(cassette))
    NETWORK.set(LocalNetwork())
    CLOCK.set(clock)
    RUN_IDS.set([cassette.run_id])
    LISTENER.set(heard.hear)
    conductor = Conductor(cassette, heard, calls, clock, speed=speed, on_event=on_event)
    async with serving_peers(calls, serve), opening_house(cassette) as house:
        reading = asyncio.create_task(_read_events(house, cassette))
        try:
            clock.start()
            found = await conductor.follow(house.tell, stop_at)
        except Difference as error:
            # A refused query explains why no events arrive.
            problem = reading.exception() if reading.done() else None
            found = error if problem is None else Difference(f"the query is refused: {problem}")
        calls.end_all()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    # Raised here, because task groups wrap exceptions raised inside them.
    if isinstance(found, Difference):
        raise found
    return found


async def _read_events(house: House, cassette: Cassette) -> None:
    request: Any = load_request("AgentService/Query", cassette.query)
    with acting_as(find_identity(cassette.header)):
        try:
            async for _ in house.agents.Query(request):
                pass
        except grpc.aio.AioRpcError as error:
            raise ValueError(error.details()) from error


def find_refusal(cassette: Cassette, *, runs_modes: bool) -> str:
    """Return why the cassette cannot be replayed; empty if it can."""
    if cassette.withheld:
        return f"its agents' definitions were withheld: `headrace record` needs the scope {cassette.withheld}"
    for name, mode in sorted(cassette.modes.items()):
        if not mode.is_whole:
            return (
                f"the code of its mode {name!r} is not what ran (SHA-256 {mode.sha256}): what looked like a secret in"
                " it was masked when it was recorded, or it was changed since"
            )
        if not runs_modes:
            return (
                f"it brings Python code of its own, the mode {name!r} (SHA-256 {mode.sha256}): read it in the file, and"
                " say --run-modes if you trust it as you would any program"
            )
    return ""


def describe_missing(cassette: Cassette) -> str:
    """Name the code that the cassette lacks, as a possible cause of a difference; empty if none is missing."""
    named = {str((definition.get("custom") or {}).get("mode") or "") for definition in cassette.agents.values()}
    missing = sorted(named - {""} - cassette.modes.keys())
    return f" (the cassette does not have the code of: {', '.join(missing)})" if missing else ""

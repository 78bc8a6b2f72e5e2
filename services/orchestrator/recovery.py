"""Ending runs that nobody runs: those a stopped orchestrator left, before this one serves, and any met later.

Each gets a new generation, `attempt.reset` and a terminal run.error INTERRUPTED, so that whoever attaches sees an
honest end. One orchestrator per memory is assumed until runs have leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from headrace.errors import HeadraceError, Interrupted, ProviderUnavailable, to_failure
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors

SEQ_PER_GENERATION = 1_000_000
"""An owner with generation g numbers its events from g times this, plus 1 (events.md)."""

RETRY_DELAY_S = 0.2
"""Between questions to a memory that is not up yet: all services of a machine start at the same time."""

T = TypeVar("T")

log = structlog.get_logger()


async def recover(peers: Peers) -> None:
    """End every unfinished run; waits for memory as long as it takes."""
    for run in await _patiently(partial(_unfinished, peers)):
        try:
            await _patiently(partial(_append, peers, _end(run)))
        except HeadraceError as error:
            # One log that takes no line must not keep the other chats waiting; whoever attaches tries again.
            log.error("run not recovered", run_id=run.run_id, reason=error.reason, problem=error.message)
        else:
            log.warning("run ended as interrupted", run_id=run.run_id, last_seq=run.last_seq)


async def end_abandoned(peers: Peers, run_id: str) -> None:
    """End a run that is not live here and has no end in the log: memory did not take it, or the answer to the query
    line was lost. A run that has ended is left as it is.
    """
    for run in await _unfinished(peers):
        if run.run_id == run_id:
            await _append(peers, _end(run))
            log.warning("run ended as interrupted", run_id=run.run_id, last_seq=run.last_seq)


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` gives once memory is there."""
    while True:
        try:
            return await ask()
        except ProviderUnavailable:
            log.debug("waiting for memory")
            await asyncio.sleep(RETRY_DELAY_S)


async def _unfinished(peers: Peers) -> list[memory_pb2.UnfinishedRun]:
    with peer_errors():
        reply = await peers.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(), timeout=UNARY_TIMEOUT_S)
    return list(reply.runs)


async def _append(peers: Peers, request: memory_pb2.AppendRequest) -> None:
    with peer_errors():
        await peers.memory.Append(request, timeout=UNARY_TIMEOUT_S)


def _end(run: memory_pb2.UnfinishedRun) -> memory_pb2.AppendRequest:
    """The last lines of an unfinished run."""
    generation = run.generation + 1
    seq = generation * SEQ_PER_GENERATION + 1
    reset = agent_pb2.AgentDelta(
        seq=seq,
        timestamp=ids.now_ms(),
        attempt_reset=agent_pb2.AttemptReset(run_id=run.run_id, from_seq=run.last_seq, reason="INTERRUPTED"),
    )
    error = Interrupted("the service stopped while the run was going; the chat is in order, ask again")
    end = memory_pb2.RunLine(state="failed", error=to_failure(error))
    end.usage.SetInParent()
    end.events.first_seq = end.events.last_seq = seq + 1
    lines = [
        memory_pb2.LogLine(event=memory_pb2.EventLine(event=reset)),
        memory_pb2.LogLine(run=end),
    ]
    return memory_pb2.AppendRequest(
        chat_id=run.chat_id, run_id=run.run_id, generation=generation, request_id=ids.new_uuid(), lines=lines
    )

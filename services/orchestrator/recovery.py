"""Ending the runs that a stopped orchestrator left unfinished, before this one serves.

Each gets a new generation, `attempt.reset` and a terminal run.error INTERRUPTED, so that whoever attaches sees an
honest end. One orchestrator per memory is assumed until runs have leases.
"""

from __future__ import annotations

import asyncio

import structlog

from headrace.errors import HeadraceError, Interrupted, ProviderUnavailable, to_failure
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers

SEQ_PER_GENERATION = 1_000_000
"""An owner with generation g numbers its events from g times this, plus 1 (events.md)."""

RETRY_DELAY_S = 0.2
"""Between questions to a memory that is not up yet: all services of a machine start at the same time."""

log = structlog.get_logger()


async def recover(peers: Peers) -> None:
    """End every unfinished run; waits for memory as long as it takes."""
    for run in await _unfinished(peers):
        try:
            await _end(peers, run)
        except HeadraceError as error:
            # A damaged log must not keep the others' agents from running; its chat is read-only anyway.
            log.error("run not recovered", run_id=run.run_id, reason=error.reason, problem=error.message)
        else:
            log.warning("run ended as interrupted", run_id=run.run_id, last_seq=run.last_seq)


async def _unfinished(peers: Peers) -> list[memory_pb2.UnfinishedRun]:
    while True:
        try:
            with rpc_errors():
                reply = await peers.memory.ListUnfinishedRuns(
                    memory_pb2.ListUnfinishedRunsRequest(), timeout=UNARY_TIMEOUT_S
                )
        except ProviderUnavailable:
            log.debug("waiting for memory")
            await asyncio.sleep(RETRY_DELAY_S)
        else:
            return list(reply.runs)


async def _end(peers: Peers, run: memory_pb2.UnfinishedRun) -> None:
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
    with rpc_errors():
        await peers.memory.Append(
            memory_pb2.AppendRequest(
                chat_id=run.chat_id,
                run_id=run.run_id,
                generation=generation,
                request_id=ids.new_uuid(),
                lines=lines,
            ),
            timeout=UNARY_TIMEOUT_S,
        )

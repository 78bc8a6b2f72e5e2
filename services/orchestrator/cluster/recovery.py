"""Ends runs that cannot be continued, and waits for memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from headrace.errors import Interrupted, ProviderUnavailable, to_failure
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.run.replay.attempt_resets import CRASHED

RETRY_DELAY_S = 0.2

T = TypeVar("T")

log = structlog.get_logger()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except ProviderUnavailable:
            log.debug("waiting for memory")
            await asyncio.sleep(RETRY_DELAY_S)


def end_of(
    run: memory_pb2.UnfinishedRun, generation: int, base_seq: int, failure: common_pb2.Failure | None = None
) -> memory_pb2.AppendRequest:
    """Make the append that ends a run, as interrupted unless readers got another `failure`."""
    reset = agent_pb2.AgentDelta(
        seq=base_seq + 1,
        timestamp=ids.now_ms(),
        attempt_reset=agent_pb2.AttemptReset(run_id=run.run_id, from_seq=run.last_seq, reason=CRASHED),
    )
    error = Interrupted("the service stopped while the run was going; the chat is in order, ask again")
    end = memory_pb2.RunLine(state="failed", error=failure or to_failure(error))
    end.usage.SetInParent()
    end.events.first_seq = end.events.last_seq = base_seq + 2
    lines = [
        memory_pb2.LogLine(event=memory_pb2.EventLine(event=reset)),
        memory_pb2.LogLine(run=end),
    ]
    return memory_pb2.AppendRequest(
        chat_id=run.chat_id, run_id=run.run_id, generation=generation, request_id=ids.new_uuid(), lines=lines
    )

"""What became of a schedule's time, as memory is told."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import HeadraceError, NotFound
from headrace.v1 import schedule_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.runtime.auth.identity import acting_as
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.v1 import agent_pb2

CORRECTION_TIMEOUT_S = 3.0
"""Of each call about a run that is taken over, whose chat waits meanwhile."""

log = structlog.get_logger()


async def record_firing(
    peers: Peers, schedule_id: str, firing: schedule_pb2.Firing, timeout_s: float = UNARY_TIMEOUT_S
) -> None:
    request = schedule_pb2.RecordFiringRequest(schedule_id=schedule_id, firing=firing)
    with acting_as(None):
        await peers.schedules.RecordFiring(request, timeout=timeout_s)
    log.info("schedule", schedule_id=schedule_id, outcome=firing.outcome, run_id=firing.run_id)


async def record_taken_run(peers: Peers, run_id: str, query: agent_pb2.QueryRequest) -> None:
    """Record once more that a time's run has begun, where `query` is one: its first owner may have died before it did,
    and an orchestrator that found the chat busy have recorded that there is none."""
    schedule_id, _, due_at = query.request_id.partition(":")
    if not (is_uuid(schedule_id) and due_at.isascii() and due_at.isdecimal() and len(due_at) < 16):
        return
    firing = schedule_pb2.Firing(due_at=int(due_at), outcome="started", run_id=run_id, chat_id=query.chat_id)
    with log_errors(schedule_id), suppress(NotFound):
        # As the run's user, who must have the schedule: anybody may choose a request id.
        get = schedule_pb2.GetScheduleRequest(schedule_id=schedule_id)
        await peers.schedules.GetSchedule(get, timeout=CORRECTION_TIMEOUT_S)
        await record_firing(peers, schedule_id, firing, CORRECTION_TIMEOUT_S)


@contextmanager
def log_errors(schedule_id: str = "") -> Generator[None]:
    """Log what one look, or one schedule, fails with: all others go on."""
    try:
        yield
    except HeadraceError as error:
        log.warning("schedules not started", schedule_id=schedule_id, reason=error.reason)
    except grpc.aio.AioRpcError as error:
        log.warning("schedules not started", schedule_id=schedule_id, status=error.code().name, said=error.details())
    except Exception:
        log.exception("schedules not started", schedule_id=schedule_id)

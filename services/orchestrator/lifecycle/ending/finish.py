"""The end of a run: its last lines, then exactly one terminal event, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog

from headrace.errors import HeadraceError, KeyUnavailable, LogDamaged, to_failure
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import metrics, tracing
from services.orchestrator.lifecycle import leases
from services.orchestrator.lifecycle.ending.recording import keep_recording
from services.orchestrator.lifecycle.ending.unreplayed import close_unreplayed
from services.orchestrator.lifecycle.execute import INTERNAL
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.state import End
from services.orchestrator.run.control.steer_queue import Steer
from services.orchestrator.run.run import Run

CANCELLED_RESULT = '{"ok":false,"error":"cancelled"}'
INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'

FINISH_RETRY_DELAYS_S = (0.0, 0.2, 1.0, 3.0)
"""Memory may be restarting; after these delays recovery ends the run."""

HAND_OVER_S = 3.0
"""This fits within the time in which the process stops."""

STATES: dict[str, End] = {"completed": "completed", "cancelled": "cancelled", "failed": "failed"}

AskNext: TypeAlias = Callable[[Run, Steer], Awaitable[None]]

NO_ROOM_FOR_AN_END = frozenset({LogDamaged.reason, KeyUnavailable.reason})
"""Errors of memory with which a run's log takes no end, whatever the end says."""

log = structlog.get_logger()


async def finish(run: Run, line: memory_pb2.RunLine, ask_next: AskNext) -> common_pb2.Failure | None:
    """Return the failure that is to be stored as the run's end, because the log took no other."""
    unheard = run.steering.close()
    run.spending.catch_up()
    line.usage.CopyFrom(run.usage)
    open_result = CANCELLED_RESULT if line.state == "cancelled" else INTERRUPTED_RESULT
    lines = run.close_scopes(line, open_result, close_unreplayed(run, line, open_result))
    await keep_recording(run, line, make_end(run, line))
    run.keep_end(line, lines)
    try:
        failure = await _commit_end(run, unheard, ask_next)
    except asyncio.CancelledError:
        run.feed.cut()  # the process ends and memory does not answer
        raise
    if failure is not None:
        # The log has no end, so there is none yet: whoever takes the run over comes to its end again, or stores the
        # failure as its end where these lines are never taken.
        run.feed.cut()
        is_open = failure.retriable or run.log.is_lost or failure.code in NO_ROOM_FOR_AN_END
        return None if is_open else failure
    _publish_end(run, line)
    log.info("run ended", run_id=run.id, state=line.state, error=line.error.code or None, seq=run.feed.seq)
    return None


async def hand_over(run: Run, peers: Peers) -> None:
    try:
        if not run.log.is_lost:
            async with asyncio.timeout(HAND_OVER_S):
                await run.flush()
                await leases.release(run, peers)
    except (HeadraceError, TimeoutError) as error:
        # Its lease runs out, then.
        log.warning("run not handed over", run_id=run.id, reason=getattr(error, "reason", "TIMEOUT"))
    except Exception:
        # The supervisor of a run: a bug in one must leave the others alone.
        log.exception("run not handed over", run_id=run.id)
    finally:
        run.feed.cut()
    log.info("run left to another owner", run_id=run.id, seq=run.feed.seq)


async def _commit_end(run: Run, unheard: list[Steer], ask_next: AskNext) -> common_pb2.Failure | None:
    """Ask the unheard messages and commit the last lines; return why that failed."""
    failure: common_pb2.Failure | None = None
    for delay_s in FINISH_RETRY_DELAYS_S:
        await asyncio.sleep(delay_s)
        try:
            while unheard:
                await ask_next(run, unheard[0])
                del unheard[0]
            await run.flush()
        except HeadraceError as error:
            failure = to_failure(error)
            log.warning("last lines not committed", run_id=run.id, reason=error.reason)
            if not error.retriable:
                break
        except Exception:
            # The supervisor again: memory's bug must not end all other runs.
            log.exception("last lines not committed", run_id=run.id)
            return INTERNAL
        else:
            return None
    return failure


def _publish_end(run: Run, line: memory_pb2.RunLine) -> None:
    metrics.ENDED.labels(line.state, line.error.code).inc()
    tracing.mark_run_end(line)
    run.feed.release_all()
    run.state.end(STATES[line.state])
    run.main.publish(make_end(run, line))


def make_end(run: Run, line: memory_pb2.RunLine) -> agent_pb2.RunComplete | agent_pb2.RunCancel | agent_pb2.RunError:
    if line.state == "completed":
        output = line.output or None
        return agent_pb2.RunComplete(run_id=run.id, finish_reason=line.finish_reason, usage=line.usage, output=output)
    if line.state == "cancelled":
        return agent_pb2.RunCancel(run_id=run.id, usage=line.usage)
    return agent_pb2.RunError(run_id=run.id, error=line.error, usage=line.usage)

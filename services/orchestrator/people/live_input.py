"""Input of people for a live run, committed before anybody acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from google.protobuf.message import Message

from headrace.errors import HeadraceError, Overloaded, ProviderUnavailable, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.run.run import Run

COMMIT_DELAYS_S = (0.0, 0.2, 1.0, 3.0)

log = structlog.get_logger()


def publish(
    run: Run, payload: Message, tasks: asyncio.TaskGroup, then: Callable[[], None], *beside: Message
) -> asyncio.Future[None]:
    """Publish an event, and those `beside` it, commit them together in one of `tasks`, then call `then`; callers shield
    the future.

    The run may end at any await, so none precedes publishing. When the log refuses the line, the run is ended and the
    future has the error.
    """
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    events = [run.main.publish(one, held=True) for one in (payload, *beside)]
    lines = run.log.keep([memory_pb2.LogLine(event=memory_pb2.EventLine(event=event)) for event in events])
    tasks.create_task(_commit_input(run, lines, then, committed))
    return committed


async def _commit_input(
    run: Run,
    lines: memory_pb2.AppendRequest,
    then: Callable[[], None],
    committed: asyncio.Future[None],
) -> None:
    try:
        await _send_until_answered(run, lines)
    except Exception as error:  # every error goes to the caller, who waits for `committed`, and ends the run
        failure = error if isinstance(error, HeadraceError) else ProviderUnavailable("it could not be stored")
        log.warning("what a person told was not committed", run_id=run.id, reason=failure.reason)
        # Another process has the run by now: it takes what is told again.
        moved = Overloaded("the run is being moved to another process; try again")
        _set_failure(committed, moved if isinstance(error, StaleLease) else error)
        run.control.interrupt(failure)
    except asyncio.CancelledError:
        _set_failure(committed, Overloaded("the service is being stopped; try again"))
        raise
    else:
        then()
        committed.set_result(None)


def _set_failure(committed: asyncio.Future[None], error: Exception) -> None:
    committed.set_exception(error)
    committed.exception()  # read here too, for a caller that has left


async def _send_until_answered(run: Run, lines: memory_pb2.AppendRequest) -> None:
    for delay_s in COMMIT_DELAYS_S:
        await asyncio.sleep(delay_s)
        try:
            await run.log.send(lines)
        except HeadraceError as error:
            if not error.retriable or delay_s == COMMIT_DELAYS_S[-1]:
                raise
        else:
            return

"""Input from people for a live run, committed before it takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from google.protobuf.message import Message

from headrace.errors import HeadraceError, Overloaded, ProviderUnavailable, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.run.log import retry_commit
from services.orchestrator.run.run import Run

log = structlog.get_logger()


def publish(
    run: Run, payload: Message, tasks: asyncio.TaskGroup, then: Callable[[], None], *others: Message
) -> asyncio.Future[None]:
    """Publish an event and `others`, commit them together in one of `tasks`, then call `then`; callers must
    shield the future.

    The run may end at any await, so none precedes publishing. If the log refuses the line, the run is ended and the
    future gets the error.
    """
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    events = [run.main.publish(one, held=True) for one in (payload, *others)]
    lines = run.log.keep([memory_pb2.LogLine(event=memory_pb2.EventLine(event=event)) for event in events])
    tasks.create_task(_commit_input(run, lines, then, committed))
    return committed


async def _commit_input(
    run: Run,
    lines: memory_pb2.AppendRequest,
    then: Callable[[], None],
    committed: asyncio.Future[None],
) -> None:
    def note_retry(error: HeadraceError) -> None:
        log.warning("a person's input is sent again", run_id=run.id, reason=error.reason)

    try:
        await retry_commit(partial(run.log.send, lines), lambda error: error.retriable, note_retry)
    except Exception as error:  # every error goes to the caller, who waits for `committed`, and ends the run
        failure = error if isinstance(error, HeadraceError) else ProviderUnavailable("it could not be stored")
        log.warning("a person's input was not committed", run_id=run.id, reason=failure.reason)
        # Another process now owns the run; the client must repeat its input there.
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

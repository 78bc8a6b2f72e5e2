"""The ends of tasks and calls: the process ends if a task fails that it needs, work is finished even if its caller
leaves, and a handled error keeps nothing in memory.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import structlog

LOST_TASK = 70
"""Exit code of a process in which a guarded task failed."""

WRONG_CONFIGURATION = 78
"""Exit code of a process that needs an operator's help; EX_CONFIG in sysexits.h."""

LAST_WORDS_S = 5.0
"""Time to log the end; the log may hang on the same fault."""

EXIT: ContextVar[Callable[[int], NoReturn]] = ContextVar("EXIT", default=os._exit)
"""Function that ends the process with a code; a context may set another one for itself."""

T = TypeVar("T")

log = structlog.get_logger()


class CannotServe(OSError):
    """A requirement of the service is not met, and a restart would not help: a password, a version, another's
    folder."""


def guard_task(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """End the process if `task` fails: a task that the process needs, without which it would serve in vain.

    Returns the task, which its owner stops like any other.
    """
    task.add_done_callback(_check_task)
    return task


@asynccontextmanager
async def guarding(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run each in a guarded task inside the block; leaving it cancels them and waits for their end."""
    tasks = [guard_task(asyncio.create_task(work)) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def end_process(code: int, event: str, **fields: Any) -> NoReturn:
    """Log `event` and exit."""
    exit_now = EXIT.get()
    if exit_now is os._exit:
        threading.Timer(LAST_WORDS_S, os._exit, (code,)).start()
    log.critical(event, **fields)
    exit_now(code)


def _check_task(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        end_process(LOST_TASK, "task ended by an error", task=name, exc_info=error)


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of a handled error and of those that led to it.

    A function that raises an error from a variable makes a cycle: error, traceback, frame, variable. Such cycles live
    until the next full garbage collection, which is rare, and keep the variables of every frame that the error passed:
    a failed model call kept ten times its request.
    """
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; a cancelled caller gets its CancelledError when the work has ended, whatever its result."""
    running = asyncio.create_task(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # raised below, once
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # marks it as seen; it is dropped
        raise

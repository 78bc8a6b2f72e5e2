"""A service's process from start to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog
import uvloop

from services.runtime.ending import WRONG_CONFIGURATION, CannotServe, guard_task
from services.runtime.process import config as settings
from services.runtime.process import logs
from services.runtime.process.early_stop import list_stops
from services.runtime.process.memory_return import return_memory
from services.runtime.process.watchdog import watching_loop
from services.runtime.telemetry import switch

C = TypeVar("C")

STDERR = 2

THREAD_TURN_S = 0.0005
"""Longest time that a thread holds the interpreter; Python's default is 5 ms."""

log = structlog.get_logger()


def run_service(cls: type[C], service: str, main: Callable[[C], Awaitable[None]]) -> None:
    """Run `main` with the settings of `service` ("MEMORY").

    Exits with 2 for wrong settings, with 78 for CannotServe, with 1 for any other error.
    """
    _reserve_standard_files()
    try:
        config = settings.load_settings(cls, service, os.environ)
        values = settings.describe_settings(config)
        logs.configure_logging(str(values["log_level"]), service.lower())
        switch.check_endpoints(os.environ)
    except (settings.ConfigError, ValueError) as error:
        for problem in str(error).splitlines():
            sys.stderr.write(f"{service.lower()}: {problem}\n")
        sys.exit(2)
    log.info("settings in force", **values)
    sys.setswitchinterval(THREAD_TURN_S)

    async def run_traced() -> None:
        # Until `wait_for_stop` takes over: a container's first process would ignore the signal, others not wait for
        # threads.
        task = asyncio.current_task()
        assert task is not None, "called by the program's task"
        _call_at_signal(task.cancel)
        async with switch.recording_spans(service.lower(), os.environ), watching_loop(float(values["stall_s"])):
            await main(config)

    failure: BaseException | None = None
    try:
        with suppress(asyncio.CancelledError):  # told to stop before it served
            uvloop.run(run_traced())
    except* Exception as errors:  # in a group, when `main` serves inside a TaskGroup
        failure = errors
    if failure is not None:
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        if isinstance(failure, OSError):
            log.error("cannot start", error=str(failure) or repr(failure))
        else:
            log.critical("ended by an error", exc_info=failure)
        sys.exit(WRONG_CONFIGURATION if isinstance(failure, CannotServe) else 1)


async def wait_for_stop() -> None:
    """Return at the first SIGTERM, SIGINT or SIGHUP; a second SIGTERM or SIGINT ends the process."""
    stopped = asyncio.Event()
    _call_at_signal(stopped.set)
    # Objects made at start are exempt from collections, which took 25 to 90 ms each (Python 3.11, 2026-11).
    gc.collect()
    gc.freeze()
    returning = guard_task(asyncio.create_task(return_memory()))
    try:
        await stopped.wait()
    finally:
        returning.cancel()


def _call_at_signal(stop: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    stops = list_stops()

    def on_signal() -> None:
        for number in stops:
            loop.remove_signal_handler(number)
            # A terminal that goes away hangs up more than once, and systemd may do so after SIGTERM.
            signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        stop()

    for number in stops:
        loop.add_signal_handler(number, on_signal)


def _reserve_standard_files() -> None:
    """Open what is closed of standard input, output and error; the next file to be opened would take its place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(STDERR, "w", closefd=False)

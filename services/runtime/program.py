"""A service's process from start to stop: settings, logging, uvloop; what goes wrong before it serves is one line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import uvloop

from services.runtime import config as settings
from services.runtime import logs
from services.runtime.telemetry.switch import traced

# Read by gRPC when it is imported, which is after us. Its handlers run in every child that the tools service forks,
# before that becomes a command, and end some of them there when other threads are in gRPC (grpcio 1.85).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

C = TypeVar("C")

log = structlog.get_logger()


def run(cls: type[C], service: str, main: Callable[[C], Awaitable[None]]) -> None:
    """Run `main` with the settings of `service` ("MEMORY") until it returns.

    Exits with 2 when the settings are wrong, with 1 when an address or a file cannot be had.
    """
    try:
        config = settings.load(cls, service, os.environ)
        values = settings.in_force(config)
        logs.configure(str(values["log_level"]), service.lower())
    except (settings.ConfigError, ValueError) as error:
        sys.exit(_complain(service, str(error)))
    log.info("settings in force", **values)

    async def started() -> None:
        async with traced(service.lower(), os.environ):
            await main(config)

    failure: BaseException | None = None
    try:
        uvloop.run(started())
    except* OSError as errors:  # in a group, when `main` serves inside a TaskGroup
        failure = errors
    if failure is not None:
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        log.error("cannot start", error=str(failure) or repr(failure))
        sys.exit(1)


async def until_stopped() -> None:
    """Return at the first SIGTERM or SIGINT; a second one ends the process at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def _complain(service: str, problems: str) -> int:
    for problem in problems.splitlines():
        sys.stderr.write(f"{service.lower()}: {problem}\n")
    return 2

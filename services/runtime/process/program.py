"""A service's process from start to stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import structlog
import uvloop

from services.runtime.ending import WRONG_CONFIGURATION, CannotServe, guard_task
from services.runtime.files.disk import UMASK
from services.runtime.process import config as settings
from services.runtime.process import logs
from services.runtime.process.early_stop import end_imports, list_stops
from services.runtime.process.metrics import measuring_loop_load
from services.runtime.process.watchdog import watching_loop
from services.runtime.telemetry import spans
from services.runtime.tokens import count

C = TypeVar("C")

STDERR = 2

COLLECTED_OBJECTS = 10_000, 5, 50
"""Objects allocated and not freed before a collection of the youngest generation; the number of such collections before
one includes the next generation; and the number of these before one of all. Python's 700 are reached with every other
run, although its objects are all freed by their reference counts; that took 5 % of a run's CPU (Python 3.11, 2026-11).
Python's 10 and 10 cause long stalls of streams without finding anything: 45 ms for 100,000 objects, 0.2 s for those of
1,000 streams."""

THREAD_TURN_S = 0.0005
"""Maximum time that a thread holds the interpreter; Python's default is 5 ms."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Service:
    config: type[Any]
    """Class of the service's settings."""

    name: str
    """Name in variables, such as MEMORY."""

    main: Callable[[Any], Awaitable[None]]
    """Serves until `wait_for_stop` returns."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One service's position among those of its process."""

    ready: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)


_TURN: ContextVar[_Turn] = ContextVar("_TURN")
"""Set for the tasks of one service among several."""


def run_service(cls: type[C], service: str, main: Callable[[C], Awaitable[None]]) -> None:
    """Run `main` with the settings of `service` ("MEMORY").

    Exits with 2 for wrong settings, with 78 for CannotServe, with 1 for any other error.
    """
    run_services([Service(cls, service, main)], service.lower())


def run_services(services: Sequence[Service], process: str) -> None:
    """Run services in one process; each starts when the previous ones are ready, and the last one stops first.

    Exits like `run_service`, and when any of them ends.
    """
    end_imports()
    os.umask(UMASK)
    _reserve_standard_files()
    configs, values = _load_settings(services)
    try:
        logs.configure_logging(str(values["log_level"]), process, is_final=True)
        spans.check_endpoints(os.environ)
    except ValueError as error:
        _refuse_settings([f"{process}: {error}"])
    for service, config in zip(services, configs, strict=True):
        with logs.naming_service(service.name.lower()):
            log.info("settings in force", **settings.describe_settings(config))
    sys.setswitchinterval(THREAD_TURN_S)

    async def run_traced() -> None:
        # Until `wait_for_stop` takes over: a container's first process would ignore the signal, and others would not
        # wait for threads.
        task = asyncio.current_task()
        assert task is not None, "called by the program's task"
        _call_at_signal(task.cancel)
        async with watching_loop(float(str(values["stall_s"]))), measuring_loop_load():
            if len(services) == 1:
                await _serve_one(services[0], configs[0])
            else:
                await _serve_together(services, configs)

    failure: BaseException | None = None
    try:
        with suppress(asyncio.CancelledError):  # stopped before it served
            uvloop.run(run_traced())
    except* Exception as errors:  # in a group, if `main` serves inside a TaskGroup
        failure = errors
    if failure is not None:
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        if isinstance(failure, OSError):
            log.error("cannot start", error=str(failure) or repr(failure))
        else:
            log.critical("ended by an error", exc_info=failure)
        sys.exit(WRONG_CONFIGURATION if isinstance(failure, CannotServe) else 1)


def _load_settings(services: Sequence[Service]) -> tuple[list[Any], dict[str, object]]:
    """Return the settings of each service, and those of the process; exits if some are wrong."""
    configs: list[Any] = []
    problems: dict[str, str] = {}
    for service in services:
        try:
            configs.append(settings.load_settings(service.config, service.name, os.environ))
        except settings.ConfigError as error:
            for problem in str(error).splitlines():  # a problem of all of them is printed once
                problems.setdefault(problem, service.name.lower())
    if problems:
        _refuse_settings(f"{name}: {problem}" for problem, name in problems.items())
    return configs, settings.describe_settings(configs[0])


def _refuse_settings(problems: Iterable[str]) -> NoReturn:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    sys.exit(2)


async def _serve_together(services: Sequence[Service], configs: Sequence[Any]) -> None:
    running: list[tuple[_Turn, asyncio.Task[None]]] = []
    async with asyncio.TaskGroup() as group:
        for service, config in zip(services, configs, strict=True):
            turn = _Turn()
            serving = group.create_task(_serve_in_turn(service, config, turn))
            running.append((turn, serving))
            await turn.ready.wait()
        await wait_for_stop()
        for turn, serving in reversed(running):
            turn.stop.set()
            await asyncio.wait({serving})


async def _serve_in_turn(service: Service, config: Any, turn: _Turn) -> None:
    # Applies to everything that the service starts, including incoming calls.
    _TURN.set(turn)
    logs.SERVICE.set(service.name.lower())
    await _serve_one(service, config)


async def _serve_one(service: Service, config: Any) -> None:
    async with spans.recording_spans(service.name.lower(), os.environ):
        await service.main(config)


async def wait_for_stop() -> None:
    """Return at the first SIGTERM, SIGINT or SIGHUP; a second SIGTERM or SIGINT ends the process.

    One service of several also waits for its turn, until those started after it have stopped.
    """
    if (turn := _TURN.get(None)) is not None:
        turn.ready.set()
        await turn.stop.wait()
        return
    stopped = asyncio.Event()
    _call_at_signal(stopped.set)
    # Objects created at the start are exempt from collections, which took 25 to 90 ms each (Python 3.11, 2026-11).
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_OBJECTS)
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
            # A vanishing terminal hangs up more than once, and systemd may do so after SIGTERM.
            signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        stop()

    for number in stops:
        loop.add_signal_handler(number, on_signal)


def _reserve_standard_files() -> None:
    """Open standard input, output and error if closed; otherwise the next opened file would take their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(STDERR, "w", closefd=False)


GROWTH_BYTES = 32 << 20
"""Growth above the lowest value since the last trim that triggers another one."""

LOOK_S = 10.0
"""Time between checks."""

REST_S = 600.0
"""Time between drops of unused encodings; an encoding is dropped after one to two times as long without use."""

YOUNG = 1
"""Objects that survive several collections are left to them: examining those of 1,000 streams took 0.2 s, in which no
stream got deltas, and found nothing."""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt."""

MAPPED_BYTES = 512 << 10
"""Size from which blocks are mapped, so that their memory is returned when they are freed. glibc raises it to that of
each block freed, and later ones leave holes in the heap: the requests of a chat of 24 MB left 250 MB (2026-11)."""


async def return_memory(*, growth_bytes: int = GROWTH_BYTES, look_s: float = LOOK_S, rest_s: float = REST_S) -> None:
    """Keep large blocks out of the heap, and trim it after the process has grown or something unused was dropped; runs
    until cancelled.
    """
    libc = ctypes.CDLL(None)
    trim_heap = getattr(libc, "malloc_trim", None)  # only in glibc
    if trim_heap is not None:
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, growth_bytes)
    least_bytes = measure_rss()
    rested_s = 0.0
    while True:
        await asyncio.sleep(look_s)
        rested_s += look_s
        has_dropped = False
        if rested_s >= rest_s:
            rested_s = 0.0
            has_dropped = count.drop_unused()
        least_bytes = min(least_bytes, measure_rss())
        if has_dropped or measure_rss() - least_bytes >= growth_bytes:
            gc.collect(YOUNG)
            if trim_heap is not None:
                trim_heap(0)
            least_bytes = measure_rss()


def measure_rss() -> int:
    """Return the process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

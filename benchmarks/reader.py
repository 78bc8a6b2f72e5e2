"""The reader of one measurement, a process of its own: `python -m benchmarks.reader` with a task as JSON, which answers
with what it saw as JSON.

It opens the task's streams one after the other, lets them run, and then looks for a while: deltas are counted and
each process's CPU time is taken between the same two moments. Behind that it opens one stream more, again and again,
to see how long a first delta takes while the others run. Then it leaves them all.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeAlias

import uvloop

from benchmarks.arrivals import Arrivals, Stream, percentile_ms
from benchmarks.cpu import cpu_us, rss_mb
from benchmarks.grpc_stream import asking
from benchmarks.http_stream import read_http

SETTLED_S = 1.0
"""Between the last stream's opening and the window."""

LATE_S = 10.0
"""How long after it was asked for the last stream may begin; then the window opens without it, as the result says."""

PROBES_TIMEOUT_S = 5.0
"""For all of a task's probes; when not even one has its first delta by then, this is what it took."""

Ask: TypeAlias = Callable[[Stream], Awaitable[None]]
"""Ask once, and read to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to read, and whom to look at."""

    url: str
    """http://… is asked as a provider is; host:port is an orchestrator."""
    model: str
    streams: int
    opened_per_s: float
    window_s: float
    again: bool = False
    """Whether a stream that has ended is opened again at once."""
    probes: int = 0
    """How often a first delta is waited for."""
    pids: dict[str, int] = field(default_factory=dict[str, int])
    """The processes under measurement, by a name of the caller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one reader saw."""

    deltas: int
    elapsed_s: float
    begun: int
    """Streams that had begun when the window closed."""
    gap_ms_p50: float
    gap_ms_p99: float
    first_ms_p50: float
    first_ms_p99: float
    cpu_us: dict[str, float]
    """Of each process of the task and of the `reader`, in the window."""
    added_mb: dict[str, float]
    """Resident memory of the same, in the window, above what it was before any stream was open."""


async def read(task: Task) -> Seen:
    """Measure once.

    Raises:
        ExceptionGroup: A stream broke.
    """
    arrivals = Arrivals(task.streams)
    pids = task.pids | {"reader": os.getpid()}
    async with _asking(task, arrivals) as ask, asyncio.TaskGroup() as group:
        before_mb = {name: rss_mb(pid) for name, pid in pids.items()}
        streams = [group.create_task(_stream(task, number, ask)) for number in range(task.streams)]
        await _until_begun(task, arrivals)
        spent_us = {name: cpu_us(pid) for name, pid in pids.items()}
        arrivals.is_counting, started_s = True, time.perf_counter()
        await asyncio.sleep(task.window_s)
        arrivals.is_counting, elapsed_s = False, time.perf_counter() - started_s
        spent_us = {name: cpu_us(pid) - spent_us[name] for name, pid in pids.items()}
        added_mb = {name: rss_mb(pid) - before_mb[name] for name, pid in pids.items()}
        begun = arrivals.begun
        firsts_s = await _firsts_s(ask, task.probes)
        for stream in streams:
            stream.cancel()
    return Seen(
        deltas=arrivals.deltas,
        elapsed_s=elapsed_s,
        begun=begun,
        gap_ms_p50=arrivals.gap_ms(50),
        gap_ms_p99=arrivals.gap_ms(99),
        first_ms_p50=percentile_ms(firsts_s, 50),
        first_ms_p99=percentile_ms(firsts_s, 99),
        cpu_us=spent_us,
        added_mb=added_mb,
    )


async def _stream(task: Task, number: int, ask: Ask) -> None:
    await asyncio.sleep(number / task.opened_per_s)
    await ask(Stream())
    while task.again:
        await ask(Stream())


async def _until_begun(task: Task, arrivals: Arrivals) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(task.streams / task.opened_per_s + LATE_S):
            await arrivals.all_begun.wait()
    await asyncio.sleep(SETTLED_S)


async def _firsts_s(ask: Ask, probes: int) -> list[float]:
    firsts_s: list[float] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(PROBES_TIMEOUT_S):
            while len(firsts_s) < probes:
                firsts_s.append(await _first_s(ask))
    return firsts_s or [PROBES_TIMEOUT_S]


async def _first_s(ask: Ask) -> float:
    """Open a stream, leave it with its first delta."""
    first: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    asking = asyncio.ensure_future(ask(Stream(first)))
    try:
        await asyncio.wait({asking, first}, return_when=asyncio.FIRST_COMPLETED)
        return first.result()
    finally:
        asking.cancel()
        await asyncio.wait({asking})


@asynccontextmanager
async def _asking(task: Task, arrivals: Arrivals) -> AsyncGenerator[Ask]:
    if not task.url.startswith("http://"):
        async with asking(task.url, task.model, arrivals) as ask:
            yield ask
        return
    messages = [{"role": "user", "content": "go"}]
    body = json.dumps({"model": task.model, "stream": True, "messages": messages}).encode()
    yield partial(read_http, task.url, body, arrivals)


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(read(Task(**json.loads(sys.argv[1])))))))

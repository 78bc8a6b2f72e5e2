"""Performs one measurement in a separate process: `python -m benchmarks.entrances.reader` with a task as JSON.

It prints the measurement as JSON. Each stream asks again as soon as its answer has ended, so runs start and end
all the time. Deltas and the CPU time of each process are counted in the same window.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import uvloop

from benchmarks.cpu import cpu_us, rss_mb
from benchmarks.entrances.arrivals import Arrivals, Stream, percentile_ms
from benchmarks.entrances.http_reader import HttpReader
from headrace.v1 import agent_pb2
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.push_stream import push_messages

QUERY = "/headrace.v1.AgentService/Query"

FAILURE_WAIT_S = 0.2

Ask: TypeAlias = Callable[[], Awaitable[None]]
"""Asks once, and reads the answer to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The load to generate, and the processes to observe."""

    url: str
    """http://… receives `body`; host:port is an orchestrator, which is asked for `agent_key`."""

    agent_key: str
    body: dict[str, Any]
    streams: int
    spread_s: float
    """Time over which the streams start."""

    settle_s: float
    """Time between the last stream's start and the window."""

    window_s: float
    pids: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    deltas: int
    elapsed_s: float
    failures: int
    """Number of broken answers; each question was asked again."""

    first_ms_p50: float
    first_ms_p99: float
    ask_ms_p50: float
    """From the question to the provider's first delta, which it sends as soon as it is called."""

    ask_ms_p99: float
    delay_ms_p50: float
    delay_ms_p99: float
    cpu_us: dict[str, float]
    """CPU time of each process in the window."""

    added_mb: dict[str, float]
    """Resident memory at the end of the window minus that before any stream was open."""


async def read(task: Task) -> Seen:
    """Perform the measurement."""
    arrivals = Arrivals()
    before_mb = {name: _measure_rss(pid) for name, pid in task.pids.items()}
    async with _opening(task, arrivals) as open_stream, asyncio.TaskGroup() as group:
        streams = [
            group.create_task(_ask_again(open_stream(), number / task.streams * task.spread_s, arrivals))
            for number in range(task.streams)
        ]
        await asyncio.sleep(task.spread_s + task.settle_s)
        spent_us = {name: cpu_us(pid) for name, pid in task.pids.items()}
        arrivals.is_counting, started_s = True, time.perf_counter()
        await asyncio.sleep(task.window_s)
        arrivals.is_counting, elapsed_s = False, time.perf_counter() - started_s
        spent_us = {name: max(cpu_us(pid) - spent_us[name], 0.0) for name, pid in task.pids.items()}
        added_mb = {name: _measure_rss(pid) - before_mb[name] for name, pid in task.pids.items()}
        for stream in streams:
            stream.cancel()
    return Seen(
        deltas=arrivals.deltas,
        elapsed_s=elapsed_s,
        failures=arrivals.failures,
        first_ms_p50=_cut(arrivals.firsts_ms, 50),
        first_ms_p99=_cut(arrivals.firsts_ms, 99),
        ask_ms_p50=_cut(arrivals.asks_ms, 50),
        ask_ms_p99=_cut(arrivals.asks_ms, 99),
        delay_ms_p50=_cut(arrivals.delays_ms, 50),
        delay_ms_p99=_cut(arrivals.delays_ms, 99),
        cpu_us=spent_us,
        added_mb=added_mb,
    )


def _measure_rss(pid: int) -> float:
    try:
        return rss_mb(pid)
    except FileNotFoundError:  # a database process ends with its connection
        return 0.0


def _cut(values_ms: list[float], percent: int) -> float:
    return percentile_ms(values_ms, percent) / 1000


async def _ask_again(ask: Ask, delay_s: float, arrivals: Arrivals) -> None:
    await asyncio.sleep(delay_s)
    while True:
        try:
            await ask()
        except Exception as error:
            arrivals.failures += 1
            if arrivals.failures == 1:
                print(f"a stream broke: {error!r}", file=sys.stderr)
            await asyncio.sleep(FAILURE_WAIT_S)


@asynccontextmanager
async def _opening(task: Task, arrivals: Arrivals) -> AsyncGenerator[Callable[[], Ask]]:
    """Yield a function that opens one stream; gRPC streams share a connection."""
    if task.url.startswith("http://"):
        body = json.dumps(task.body).encode()
        yield lambda: HttpReader(task.url, body, arrivals).ask
        return
    request = agent_pb2.QueryRequest(message="go", agent_key=task.agent_key, on_disconnect="cancel")
    async with open_channel(task.url) as channel:
        await channel.channel_ready()
        # Any: a bytes stream has no stub.
        query: Any = channel.unary_stream(
            QUERY, request_serializer=agent_pb2.QueryRequest.SerializeToString, response_deserializer=None
        )

        async def ask() -> None:
            await push_messages(query(request), Stream(arrivals).take)

        yield lambda: ask


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(read(Task(**json.loads(sys.argv[1])))))))

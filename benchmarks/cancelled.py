"""Streams cancelled in mid-flight, many of them: does any process grow? `python -m benchmarks.cancelled`

Prints each process's resident memory on the way, and its slope after the first fifth: the bytes that one cancelled
stream leaves behind. Bounded by --minutes; what was run is said. HEADRACE_TRANSPORT says how all of them talk.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.arrivals import MARK
from benchmarks.cpu import rss_mb
from benchmarks.grpc_stream import QUERY
from benchmarks.processes import START_TIMEOUT_S, gateway, stack
from headrace.streams import reading
from headrace.v1 import agent_pb2, llm_pb2
from services.runtime.process.transport import get_transport
from services.runtime.rpc.channels import open_channel

STREAM_CHAT = "/headrace.v1.LlmService/StreamChat"

MODEL = "bench-1000x5ms"
AT_ONCE = 100
DELTAS_MAX = 10
"""A stream is left after 0 to so many of its deltas, at random."""

WARM_UP_RATIO = 0.2
SAMPLES = 40
SEED = 1

Leave: TypeAlias = Callable[[int], Awaitable[None]]
"""Open a stream, read so many deltas, cancel."""


async def main(streams: int, way: str, minutes: float) -> None:
    opened = gateway_alone if way == "gateway" else whole_chain
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with opened(Path(folder)) as (leave, pids):
            started = time.monotonic()
            samples = await _run(leave, pids, streams, started + minutes * 60)
            elapsed_s = time.monotonic() - started
    done = samples[-1][0]
    title = (
        f"{done:,} of {streams:,} streams cancelled in mid-flight in {elapsed_s:.0f} s "
        f"({done / elapsed_s:.0f} a second, {way}, {get_transport()}, {AT_ONCE} at once)"
    )
    Console(width=120).print(_table(title, samples, done))


@asynccontextmanager
async def gateway_alone(folder: Path) -> AsyncGenerator[tuple[Leave, Mapping[str, int]]]:
    """StreamChat of the gateway, before the simulator."""
    message = llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text="go")])
    request = llm_pb2.ChatRequest(provider_key="sim", model=MODEL, messages=[message])
    async with gateway(folder, MODEL) as (address, pids), _leaving(address, STREAM_CHAT, request) as leave:
        yield leave, pids


@asynccontextmanager
async def whole_chain(folder: Path) -> AsyncGenerator[tuple[Leave, Mapping[str, int]]]:
    """Query of the orchestrator, before everything; the run is cancelled with its reader, and each has a new chat."""
    request = agent_pb2.QueryRequest(message="go", agent_key=MODEL, on_disconnect="cancel")
    async with stack(folder, [MODEL]) as where, _leaving(where.grpc, QUERY, request) as leave:
        yield leave, where.pids


@asynccontextmanager
async def _leaving(address: str, path: str, request: Any) -> AsyncGenerator[Leave]:
    """All calls share one connection, and no reply is parsed: the machine's time is for those that are looked at."""
    async with open_channel(address) as channel:
        async with asyncio.timeout(START_TIMEOUT_S):
            await channel.channel_ready()
        call: Any = channel.unary_stream(
            path, request_serializer=type(request).SerializeToString, response_deserializer=None
        )

        async def leave(deltas: int) -> None:
            async with reading(call(request)) as replies:
                async for reply in replies:
                    deltas -= MARK in reply
                    if deltas < 0:
                        return

        yield leave


Sample: TypeAlias = tuple[int, dict[str, float]]
"""Streams done, and each process's resident memory in MB."""


async def _run(leave: Leave, pids: Mapping[str, int], streams: int, until_s: float) -> list[Sample]:
    rng = random.Random(SEED)
    samples: list[Sample] = []
    begun = done = 0

    async def one_after_another() -> None:
        nonlocal begun, done
        while begun < streams and time.monotonic() < until_s:
            begun += 1
            await leave(rng.randint(0, DELTAS_MAX))
            done += 1
            if done % max(streams // SAMPLES, 1) == 0:
                samples.append((done, {name: rss_mb(pid) for name, pid in pids.items()}))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_another())
    samples.append((done, {name: rss_mb(pid) for name, pid in pids.items()}))
    return samples


def _table(title: str, samples: list[Sample], done: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("resident MB after")
    marks = [next(sample for sample in samples if sample[0] >= done * fifth / 5) for fifth in range(6)]
    for column in (*(f"{count:,}" for count, _ in marks), "slope, bytes a stream"):
        table.add_column(column, justify="right")
    warm = [sample for sample in samples if sample[0] >= done * WARM_UP_RATIO]
    for name in samples[0][1]:
        points = [(count, rss[name] * 2**20) for count, rss in warm]
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else float("nan")
        table.add_row(name, *(f"{rss[name]:.1f}" for _, rss in marks), f"{slope:.0f}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--way", choices=("gateway", "chain"), default="gateway")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop then, wherever it is")
    given = parser.parse_args()
    uvloop.run(main(given.streams, given.way, given.minutes))

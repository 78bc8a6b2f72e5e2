"""The two facades side by side, and gRPC without one, before an orchestrator that stamps each delta with the time it
was sent: `python -m benchmarks.facades`. One clock: CLOCK_MONOTONIC is the machine's."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import grpc
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.cpu import cpu_us, rss_mb
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc

GATEWAY = Path(__file__).parents[1] / "build" / "gateway"
START_TIMEOUT_S = 30.0
STAMP = re.compile(rb"@(\d+)@")
LOADS = ((1, "200 20"), (40, "64 20"), (200, "64 20"), (40, "2000 0"))
"""Streams at once, and what each of them gets: deltas, and milliseconds between them."""

OPENAI = "embedded, OpenAI's form"

SPREAD_S = 0.5
"""Over which the streams of a load begin."""


@dataclass
class Seen:
    """Of one load, in milliseconds."""

    firsts: list[float] = field(default_factory=list[float])
    """From the question to the first event."""

    delays: list[float] = field(default_factory=list[float])
    """From a delta's sending to its arrival."""


Way: TypeAlias = Callable[[str, Seen], Awaitable[None]]
"""Read one answer to its end."""


def over_http(http: aiohttp.ClientSession, url: str) -> Way:
    return _over_http(http, f"{url}/api/query", lambda message: {"message": message})


def over_openai(http: aiohttp.ClientSession, url: str) -> Way:
    def build(message: str) -> dict[str, Any]:
        return {"model": "paced", "stream": True, "messages": [{"role": "user", "content": message}]}

    return _over_http(http, f"{url}/v1/chat/completions", build)


def _over_http(http: aiohttp.ClientSession, url: str, build_body: Callable[[str], dict[str, Any]]) -> Way:
    async def read(message: str, seen: Seen) -> None:
        asked_s, is_first = time.perf_counter(), True
        async with http.post(url, json=build_body(message)) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_any():
                now_s = time.perf_counter()
                if is_first:
                    seen.firsts.append((now_s - asked_s) * 1000)
                    is_first = False
                seen.delays += [now_s * 1000 - int(stamp) / 1e6 for stamp in STAMP.findall(chunk)]

    return read


def over_grpc(channel: grpc.aio.Channel) -> Way:
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)

    async def read(message: str, seen: Seen) -> None:
        asked_s, is_first = time.perf_counter(), True
        async with reading(stub.Query(agent_pb2.QueryRequest(message=message))) as deltas:
            async for delta in deltas:
                now_s = time.perf_counter()
                if is_first:
                    seen.firsts.append((now_s - asked_s) * 1000)
                    is_first = False
                if stamp := delta.content_delta.delta.strip("@"):
                    seen.delays.append(now_s * 1000 - int(stamp) / 1e6)

    return read


async def main() -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        address = f"unix:{folder}/peer.sock"
        await stack.enter_async_context(_process(sys.executable, "-m", "benchmarks.paced", address))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        ways: dict[str, Way] = {"grpc alone": over_grpc(channel)}
        pids = dict[str, int]()
        peers: dict[str, str] = dict.fromkeys(("ORCHESTRATOR", "MEMORY", "TOOLS"), address)
        for name, prefix, command in (
            ("embedded (Python)", "FACADE", (sys.executable, "-m", "services.facade")),
            ("gateway (Go)", "GATEWAY", (str(GATEWAY),)),
        ):
            if not _is_there(command[0]):
                print(f"NOTICE: {name} is left out: run `make build/gateway`, which needs Go")
                continue
            pids[name], url = await stack.enter_async_context(starting_facade(prefix, peers, command))
            ways[name] = over_http(http, url)
            if prefix == "FACADE":
                pids[OPENAI], ways[OPENAI] = pids[name], over_openai(http, url)
        Console(width=130).print(await _table(ways, pids))


def _is_there(program: str) -> bool:
    return Path(program).exists()


async def _table(ways: dict[str, Way], pids: dict[str, int]) -> Table:
    table = Table(
        title="A facade's part: time on the way in ms, CPU µs and memory of its process", title_justify="left"
    )
    for column in ("streams", "deltas, ms apart", "way"):
        table.add_column(column)
    for column in ("first p50", "p99", "delta p50", "p99", "deltas/s", "CPU µs/delta", "MB"):
        table.add_column(column, justify="right")
    for streams, message in LOADS:
        for name, way in ways.items():
            await _load(way, 1, "20 1")  # connections are open, code is compiled
            before_us = cpu_us(pids[name]) if name in pids else 0
            started_s = time.perf_counter()
            seen = await _load(way, streams, message)
            rate = len(seen.delays) / (time.perf_counter() - started_s)
            spent = f"{(cpu_us(pids[name]) - before_us) / len(seen.delays):.1f}" if name in pids else "–"
            cells = (_p(seen.firsts, 50), _p(seen.firsts, 99), _p(seen.delays, 50), _p(seen.delays, 99))
            memory = f"{rss_mb(pids[name]):.0f}" if name in pids else "–"
            table.add_row(str(streams), message, name, *(f"{it:.2f}" for it in cells), f"{rate:.0f}", spent, memory)
        table.add_section()
    return table


async def _load(way: Way, streams: int, message: str) -> Seen:
    seen = Seen()

    async def one(number: int) -> None:
        await asyncio.sleep(SPREAD_S * number / streams)
        await way(message, seen)

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(one(number))
    return seen


def _p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


@asynccontextmanager
async def starting_facade(
    prefix: str, peers: Mapping[str, str], command: Sequence[str]
) -> AsyncGenerator[tuple[int, str]]:
    """Its process id and URL; `peers` are the services' addresses by name."""
    own = {f"HEADRACE_{prefix}_{name}_ADDRESS": address for name, address in peers.items()}
    gateway = {"HEADRACE_GATEWAY_LISTEN": "127.0.0.1:0", "HEADRACE_AUTH": "api_key"}  # the services ask for none
    own |= gateway if prefix == "GATEWAY" else {"HEADRACE_FACADE_PORT": "0"}
    async with _process(*command, stream="stderr", **own) as (process, line):
        yield process.pid, f"http://{json.loads(line)['addresses'][0]}"


@asynccontextmanager
async def _process(
    *command: str, stream: str = "stdout", **environment: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, bytes]]:
    """A process, and the line that says that it serves; what it says later is read and dropped."""
    pipe = {stream: asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | environment, **pipe)  # pyright: ignore[reportArgumentType] - one of two keywords
    said: Any = getattr(process, stream)
    async with asyncio.timeout(START_TIMEOUT_S):
        line = await said.readline()
        while stream == "stderr" and json.loads(line)["event"] != "serving":
            line = await said.readline()
    dropping = asyncio.create_task(_drop(said))
    try:
        yield process, line
    finally:
        process.terminate()
        await process.wait()
        await dropping


async def _drop(said: asyncio.StreamReader) -> None:
    while await said.readline():
        pass


if __name__ == "__main__":
    uvloop.run(main())

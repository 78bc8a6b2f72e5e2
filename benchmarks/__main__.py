"""Prints three tables: what a delta costs, what the hops add to its way, what open streams weigh."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.cpu import cpu_us, rss_mb
from benchmarks.processes import Stack, stack
from benchmarks.readers import Readers, Times, together
from headrace.client import Client

PACED = "bench-64x20ms"
STEADY = "bench-200x30ms"
FLAT_OUT = "bench-2000x0ms"
IDLE = "idle"
IDLE_STREAMS = 1000
SERVICES = ("llm_gateway", "orchestrator", "memory", "tools", "facade")

console = Console(width=120)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with stack(Path(folder), [PACED, STEADY, FLAT_OUT, IDLE]) as where:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=600)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
                Client(where.grpc) as client,
            ):
                readers = Readers(where, http, client)
                await _warm_up(readers)
                console.print(await _latency(readers))
                console.print(await _cost(readers, where))
                console.print(await _weight(readers, where))


async def _warm_up(readers: Readers) -> None:
    for way in ("direct", "relay", "grpc", "http"):
        await together(readers.by_name(way, PACED), 4, 0.1)


async def _latency(readers: Readers) -> Table:
    table = _table("On the way: 64 deltas 20 ms apart (ms)", "streams", "way", "first p50", "first p99")
    for name in ("gap p50", "gap p99", "added first p50", "added first p99"):
        table.add_column(name, justify="right")
    for streams in (1, 40):
        floor: list[float] = []
        for way in ("direct", "relay", "grpc", "http"):
            rounds = 20 if streams == 1 else 3
            seen: list[Times] = []
            for _ in range(rounds):
                seen += await together(readers.by_name(way, PACED), streams, 0.5 if streams > 1 else 0)
            firsts = [times[0] * 1000 for times in seen]
            gaps = [(later - earlier) * 1000 for times in seen for earlier, later in pairwise(times)]
            cells = [_p(firsts, 50), _p(firsts, 99), _p(gaps, 50), _p(gaps, 99)]
            floor = floor or cells
            added = [cells[0] - floor[0], cells[1] - floor[1]]
            table.add_row(str(streams), way, *(f"{cell:.2f}" for cell in (*cells, *added)))
    return table


async def _cost(readers: Readers, where: Stack) -> Table:
    table = _table("CPU µs per delta", "streams", "load", "way", "deltas/s")
    for name in ("llm_gateway", "orchestrator", "facade", "relay"):
        table.add_column(name, justify="right")
    for streams, model, load in ((1, FLAT_OUT, "flat out"), (40, STEADY, "33/s each"), (40, FLAT_OUT, "flat out")):
        for way in ("relay", "grpc", "http"):
            before = {name: cpu_us(pid) for name, pid in where.pids.items()}
            started = asyncio.get_running_loop().time()
            seen = await together(readers.by_name(way, model), streams, 0.5)
            elapsed_s = asyncio.get_running_loop().time() - started
            deltas = sum(len(times) for times in seen)
            spent = {name: (cpu_us(pid) - before[name]) / deltas for name, pid in where.pids.items()}
            columns = ("llm_gateway", "orchestrator", "facade", "relay")
            used = {"relay": {"relay"}, "grpc": {"llm_gateway", "orchestrator"}}.get(way, set(columns) - {"relay"})
            cells = (f"{spent[name]:.0f}" if name in used else "–" for name in columns)
            table.add_row(str(streams), load, way, f"{deltas / elapsed_s:.0f}", *cells)
    return table


async def _weight(readers: Readers, where: Stack) -> Table:
    """Resident memory idle, and with many streams whose model is silent."""
    idle = {name: rss_mb(where.pids[name]) for name in SERVICES}
    reader = readers.by_name("http", IDLE)
    streams = asyncio.create_task(together(reader, IDLE_STREAMS, 5))
    await asyncio.sleep(10)
    loaded = {name: rss_mb(where.pids[name]) for name in SERVICES}
    streams.cancel()
    await asyncio.wait({streams})
    table = _table("Resident memory (MB)", "service", "idle", f"with {IDLE_STREAMS} silent streams", "added")
    for name in SERVICES:
        table.add_row(name, f"{idle[name]:.0f}", f"{loaded[name]:.0f}", f"{loaded[name] - idle[name]:.0f}")
    added = sum(loaded.values()) - sum(idle.values())
    table.add_row("all", f"{sum(idle.values()):.0f}", f"{sum(loaded.values()):.0f}", f"{added:.0f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in ("way", "load", "service") else "right")
    return table


def _p(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    uvloop.run(main())

"""What replicas make of a delta's way: `python -m benchmarks.replicas` prints one and two orchestrators and gateways
side by side, asked through the round robin that clients have.

A process uses one core. Where the machine has fewer cores than there are processes, two of a service carry no more than
one: the table then tells what it costs to have them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.figures import Figures, figures, us
from benchmarks.grid import Grid
from benchmarks.measuring import FLAT_OUT, IDLE, PACED, Load, broken, measure, rounds
from benchmarks.postgresql import programs
from benchmarks.postgresql import running as postgresql
from benchmarks.processes import configure, simulating
from benchmarks.ways import CHAIN, DIRECT, Way, Ways
from services.runtime.rpc.channels import open_channel

LOADS = (Load(40), Load(160), Load(40, FLAT_OUT))
START_TIMEOUT_S = 180.0
"""Of a service, while all others start too."""

console = Console(width=150)


async def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            ways = await _ways(Path(folder), stack)
            for way in ways.ways:
                await measure(ways, way, Load(40), 1.0)
            results = await rounds(ways, LOADS, given.rounds, given.window_s, console.print)
    for note in (*ways.missing, *broken(results)):
        console.print(f"NOTICE: {note}")
    console.print(_table(figures(results), os.cpu_count() or 1).printed())


async def _ways(folder: Path, stack: AsyncExitStack) -> Ways:
    base_url, simulator = await stack.enter_async_context(simulating(folder))
    configure(folder / "config", base_url, [PACED, FLAT_OUT, IDLE])
    ways, missing = [Way(name=DIRECT, url=f"{base_url}/chat/completions")], list[str]()
    for replicas in (1, 2):
        name = f"{replicas} of each"
        ways.append(await stack.enter_async_context(_suite(name, folder, replicas)))
    if programs() is None:
        missing.append("PostgreSQL is not installed on this machine.")
    else:
        url = stack.enter_context(postgresql()).url()
        ways.append(await stack.enter_async_context(_suite("2 of each, PostgreSQL", folder, 2, url)))
    return Ways(simulator_url=base_url, simulator_pid=simulator, ways=ways, missing=missing)


@asynccontextmanager
async def _suite(name: str, folder: Path, replicas: int, database_url: str = "") -> AsyncGenerator[Way]:
    """So many gateways and orchestrators, with one memory service and one for tools."""
    place = folder / f"{replicas}{'p' if database_url else ''}"
    place.mkdir()
    numbers = range(1, replicas + 1)
    gateways, orchestrators = ([f"unix:{place}/{service}-{number}" for number in numbers] for service in CHAIN)
    memory, tools = f"unix:{place}/memory", f"unix:{place}/tools"
    shared = {
        "HEADRACE_TRANSPORT": "h2",
        "HEADRACE_CONFIG_DIR": str(folder / "config"),
        "HEADRACE_DATA_DIR": str(place / "data"),
    }
    calls = {"LLM_GATEWAY_ADDRESS": ",".join(gateways)}
    peers = calls | {"MEMORY_ADDRESS": memory, "TOOLS_ADDRESS": tools}
    store = shared | ({"HEADRACE_DATABASE_URL": database_url} if database_url else {})
    async with AsyncExitStack() as stack:

        async def start(service: str, address: str, settings: dict[str, str]) -> tuple[str, int]:
            ours = {
                f"HEADRACE_{service.upper()}_{key}": value for key, value in {"LISTEN": address, **settings}.items()
            }
            pid = await _started(stack, service, address, (store if service == "memory" else shared) | ours)
            return address.rpartition("/")[2], pid

        counted = {"REPLICAS": str(replicas)}
        behind = [start("llm_gateway", address, counted) for address in gateways]
        behind += [start("memory", memory, calls), start("tools", tools, calls)]
        found = await asyncio.gather(*behind)
        before = [start("orchestrator", address, peers | {"ADVERTISE": address}) for address in orchestrators]
        found += await asyncio.gather(*before)
        pids = {key: pid for key, pid in found if key != "tools"}
        yield Way(name=name, url=",".join(orchestrators), pids=pids, transport="h2")


async def _started(stack: AsyncExitStack, service: str, address: str, settings: dict[str, str]) -> int:
    """The process id of a service that answers at `address`, until the end of `stack`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"services.{service}"), env=os.environ | settings, stderr=asyncio.subprocess.DEVNULL
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    async with open_channel(address) as channel, asyncio.timeout(START_TIMEOUT_S):
        await channel.channel_ready()
    return process.pid


def _table(rows: Sequence[Figures], cores: int) -> Grid:
    grid = Grid(
        f"Replicas of orchestrator and gateway, on {cores} cores",
        (
            *("streams", "<pace", "<replicas", "deltas/s", "gateway µs", "orchestrator µs", "CPU µs/delta"),
            *("busiest gateway %", "busiest orchestrator %", "added gap ms p50", "p99"),
        ),
    )
    for row in rows:
        if row.way == DIRECT:
            continue
        spent = [[spent_us for name, spent_us in row.cpu_us.items() if name.startswith(service)] for service in CHAIN]
        costs = [us(sum(each)) for each in spent]
        shares = [f"{100 * max(each) / max(sum(each), 1e-9):.0f}" for each in spent]
        gaps = ["–"] * 2 if row.load.model == FLAT_OUT else [f"{gap:.2f}" for gap in row.gap_ms]
        load = (f"{row.load.streams}", row.load.pace)
        grid.rows.append((*load, row.way, f"{row.deltas_per_s:,.0f}", *costs, us(row.way_us), *shares, *gaps))
    return grid


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.replicas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=5.0, help="how long deltas are counted")
    uvloop.run(main(parser.parse_args()))

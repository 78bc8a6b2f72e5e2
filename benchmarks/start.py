"""What a start costs: `python -m benchmarks.start` prints `headrace up` to ready, and the import of each service.

CPU time is of all processes of the suite up to the moment at which `headrace up` says that it is ready; it polls for
that, and so do the services for each other. Medians; imports are of a process of their own each time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cpu import cpu_us, rss_mb
from benchmarks.memory.tables import table
from benchmarks.processes import configure, services_of, started

ROUNDS = 5

SERVICES = ("facade", "orchestrator", "llm_gateway", "memory", "tools", "simulator")

UP = "headrace up itself"

IMPORT = """
import sys, time
begun_s, used_s = time.perf_counter(), time.process_time()
__import__(sys.argv[1])
print(time.perf_counter() - begun_s, time.process_time() - used_s, len(sys.modules))
"""


async def starts(rounds: int) -> Table:
    """The suite with its simulator, a configuration of one agent, and an empty data folder."""
    walls_s: list[float] = []
    costs: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            walls_s.append(await _start(Path(folder), costs))
    wall_s = statistics.median(walls_s)
    found = table(f"headrace up --simulate to ready: {wall_s:.2f} s", "process", "CPU s", "RSS MB")
    for name, spent in costs.items():
        found.add_row(
            name, f"{statistics.median(s for s, _ in spent):.2f}", f"{statistics.median(mb for _, mb in spent):.0f}"
        )
    total_s = statistics.median(sum(spent[index][0] for spent in costs.values()) for index in range(rounds))
    found.add_row("all", f"{total_s:.2f}", "")
    return found


async def _start(folder: Path, costs: dict[str, list[tuple[float, float]]]) -> float:
    """Seconds until the suite is ready; what each process has cost by then is added to `costs`."""
    configure(folder / "config", "env:SIMULATOR_URL", ["sim-1"])
    folders = ("--config-dir", str(folder / "config"), "--data-dir", str(folder / "data"))
    ports = ("--port", "0", "--grpc-port", "0", "--simulate", "--simulate-port", "0")
    begun_s = time.perf_counter()
    async with started("-m", "headrace.cli", "up", *folders, *ports) as (up, _):
        wall_s = time.perf_counter() - begun_s
        for name, pid in sorted((services_of(up) | {UP: up}).items()):
            costs.setdefault(name, []).append((cpu_us(pid) / 1e6, rss_mb(pid)))
    return wall_s


def imports(rounds: int) -> Table:
    """Each service's modules as its process loads them before it reads its settings."""
    found = table("Import of a service", "service", "wall ms", "CPU ms", "modules")
    for service in SERVICES:
        told = [_imported(f"services.{service}.__main__") for _ in range(rounds)]
        wall_s, used_s, modules = (statistics.median(each) for each in zip(*told, strict=True))
        found.add_row(service, f"{wall_s * 1000:.0f}", f"{used_s * 1000:.0f}", f"{modules:.0f}")
    return found


def _imported(module: str) -> list[float]:
    command = [sys.executable, "-c", IMPORT, module]
    return [
        float(word)
        for word in subprocess.run(command, env=os.environ, check=True, stdout=subprocess.PIPE).stdout.split()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    console = Console(width=100)
    console.print(asyncio.run(starts(given.rounds)))
    console.print(imports(given.rounds))

"""Cost of runs and deltas at each entrance, compared with peers: `python -m benchmarks.entrances` prints the tables.

With `--write docs` it also writes docs/performance.md. `--window-s 1 --agents 20 --chats 100` gives a quick look.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.entrances.aims import show_aims
from benchmarks.entrances.disk import time_writes
from benchmarks.entrances.growth import measure_forms, measure_growth
from benchmarks.entrances.loads import Page, measure_loads
from benchmarks.entrances.measuring import Measuring
from benchmarks.entrances.page import write_page
from benchmarks.entrances.ways import FRAMEWORKS, PROVIDER, opening_ways
from benchmarks.machine import machine
from benchmarks.peers.environment import read_version
from benchmarks.processes import started

console = Console(width=200)


async def main(given: argparse.Namespace) -> None:
    begun_s = time.monotonic()

    def report(text: str) -> None:
        console.print(f"{time.monotonic() - begun_s:5.0f} s  {text}", highlight=False)

    page = Page()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with opening_ways(Path(folder), report) as ways:
            page.disk_ms = time_writes(Path(folder))
            measuring = Measuring(ways.base_url, given.window_s, given.rounds, report)
            await measure_loads(measuring, ways.ways, page)
    async with started("-m", PROVIDER) as (_, line):
        at_rest = Measuring(line.strip(), given.window_s, 1, report, measuring.notes)
        forms_grid, forms = await measure_forms(at_rest)
        growth_grid, growth = await measure_growth(at_rest, given.agents, given.chats)
    imports_s = statistics.median(_time_imports() for _ in range(5))
    grids = [show_aims(page.results, forms, growth, imports_s), *page.grids, forms_grid, growth_grid]
    notes = [*ways.missing, *measuring.notes]
    for grid in grids:
        console.print(grid.printed())
    for note in notes:
        console.print(f"NOTICE: {note}")
    if given.write:
        minutes = (time.monotonic() - begun_s) / 60
        about = machine() | {name: read_version(FRAMEWORKS, name.lower()) for name in ("FastAPI", "httpx", "LangGraph")}
        text = write_page(about, grids, notes, rounds=given.rounds, window_s=given.window_s, minutes=minutes)
        given.write.joinpath("performance.md").write_text(text)


def _time_imports() -> float:
    begun_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import grpc, aiohttp, pydantic"], check=True)
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.entrances", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--window-s", type=float, default=7.0, help="how long deltas and CPU time are counted")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--chats", type=int, default=100_000)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write performance.md there")
    uvloop.run(main(parser.parse_args()))

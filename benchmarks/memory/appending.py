"""Measures appends by 1, 8 and 64 writers in other processes, to one chat and to one chat each."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.cpu import cpu_us
from benchmarks.memory.lines import append, new_id, query
from benchmarks.memory.service import Running, engines, running
from benchmarks.memory.tables import ms, table

if TYPE_CHECKING:
    from benchmarks.postgresql import Server

SECONDS = 5.0
PROCESSES = 2
"""Number of writer processes; a single one would be busier than the service."""

ROUNDS = ((1, 1, 1), (8, 1, 1), (64, 1, 1), (8, 8, 1), (64, 64, 1), (64, 1, 4), (64, 64, 4))
"""Writers, chats, and lines per append."""


async def appending(folder: Path, server: Server | None) -> Table:
    found = table(
        f"Append: each acknowledged when on disk ({SECONDS:.0f} s, writers in {PROCESSES} processes)",
        *("to", "writers", "lines each", "lines/s", "appends/s", "p50 ms", "p99 ms", "CPU µs a line"),
    )
    async with running(folder / "echo", command=("benchmarks.memory.echo", str(folder / "echo"))) as echo:
        found.add_row("nothing: an RPC alone", *await _round(echo, 64, 64, 1))
    for engine, place in engines(server).items():
        found.add_section()
        async with running(folder / engine, database_url=place()) as memory:
            for writers, chats, lines in ROUNDS:
                to = f"{engine}: {'one chat' if chats == 1 else f'{chats} chats'}"
                found.add_row(to, *await _round(memory, writers, chats, lines))
    return found


async def _round(memory: Running, writers: int, chats: int, lines: int) -> list[str]:
    chat_ids = [new_id() for _ in range(chats)]
    runs = [(chat_ids[number % chats], new_id()) for number in range(writers)]
    for chat_id, run_id in runs:
        await append(memory.stub, chat_id, run_id, query("write"))
    before_us = cpu_us(memory.pid)
    processes = min(writers, PROCESSES)
    told = await asyncio.gather(*(_writing(memory.address, lines, runs[i::processes]) for i in range(processes)))
    times = [elapsed_s for process in told for elapsed_s in process]
    cpu = (cpu_us(memory.pid) - before_us) / len(times) / lines
    rate = len(times) / SECONDS
    figures = (f"{lines * rate:,.0f}", f"{rate:,.0f}", ms(times, 50), ms(times, 99), f"{cpu:.0f}")
    return [str(writers), str(lines), *figures]


async def _writing(address: str, lines: int, runs: list[tuple[str, str]]) -> list[float]:
    names = (f"{chat_id}:{run_id}" for chat_id, run_id in runs)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.memory.writer", address, str(SECONDS), str(lines), *names),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    return json.loads(told)

"""Measures the CPU cost of encryption for Append, and for LoadContext with and without the chat in memory.

It compares a plain-text store with an encrypted one, in turns. A single caller keeps other costs out of the
figures, and CPU time is robust on a busy machine.
"""

from __future__ import annotations

import asyncio
import base64
import os
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.cpu import cpu_us
from benchmarks.memory.lines import PROSE, TIMEOUT_S, answer, append, end, new_id, query, step
from benchmarks.memory.service import Running, engines, running
from benchmarks.memory.tables import table
from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from benchmarks.postgresql import Server

ROUNDS = 10
"""Number of turns of each kind, so that a machine that slows down affects both; the median counts."""

CALLS = 100
"""Calls per turn."""

COLD_CALLS = 4
"""Chats read from disk per turn."""

CHAT_RUNS = 40
"""Runs per chat, of 1,000 characters each."""

KINDS = ("plain", "encrypted")


async def encrypting(folder: Path, server: Server | None) -> Table:
    found = table(
        "Encryption at rest: the service's CPU µs a call, one caller",
        "to",
        *(f"{call}, {kind}" for call in ("append", "LoadContext", "first LoadContext") for kind in (*KINDS, "%")),
    )
    for engine, place in engines(server).items():
        figures = await _measure(folder / engine, place)
        rows = [(plain, encrypted, (encrypted / plain - 1) * 100) for plain, encrypted in figures]
        found.add_row(engine, *(f"{figure:.0f}" for row in rows for figure in row))
    return found


async def _measure(folder: Path, place: Callable[[], str]) -> list[tuple[float, float]]:
    """Return the cost of each kind of call, in plain text and encrypted."""
    async with AsyncExitStack() as stack:
        turns = [await stack.enter_async_context(_serving(folder / kind, place(), kind)) for kind in KINDS]
        rounds = [[await turn() for turn in turns] for _ in range(ROUNDS)]
    medians = [
        [statistics.median(figures[kind][call] for figures in rounds) for kind in range(len(KINDS))]
        for call in range(len(rounds[0][0]))
    ]
    return [(plain, encrypted) for plain, encrypted in medians]


@asynccontextmanager
async def _serving(folder: Path, database_url: str, kind: str) -> AsyncGenerator[Callable[[], Awaitable[list[float]]]]:
    """Serve chats that were written before, and yield a function that measures one turn."""
    settings = _make_keys(folder) if kind == "encrypted" else {}
    async with running(folder, database_url=database_url, **settings) as memory:
        chats = [await _write_chat(memory) for _ in range(ROUNDS * COLD_CALLS + 1)]
    if settings:
        # Done beforehand, so that no background re-encryption runs during the measurement.
        place = {"HEADRACE_DATA_DIR": str(folder), "HEADRACE_DATABASE_URL": database_url}
        command = (sys.executable, "-m", "services.memory.admin_cli", "reencrypt")
        process = await asyncio.create_subprocess_exec(*command, env=os.environ | settings | place)
        assert await process.wait() == 0
    async with running(folder, database_url=database_url, **settings) as memory:
        warm = chats.pop()
        await _load(memory, *warm)  # warms up imports and connections
        chat_id, run_id = new_id(), new_id()
        await append(memory.stub, chat_id, run_id, query("write"))

        async def write() -> None:
            await append(memory.stub, chat_id, run_id, step(answer(PROSE * 4, "m_00000001")))

        async def load() -> None:
            await _load(memory, *warm)

        async def load_cold() -> None:
            await _load(memory, *chats.pop())

        async def measure() -> list[float]:
            calls = ((write, CALLS), (load, CALLS), (load_cold, COLD_CALLS))
            return [await _count_cpu(memory, call, count) for call, count in calls]

        yield measure


def _make_keys(folder: Path) -> dict[str, str]:
    """Create a file with a master key, and return the setting that names it."""
    folder.mkdir(parents=True)
    (folder / "keys").write_text(f"bench:{base64.b64encode(os.urandom(32)).decode()}\n")
    return {"HEADRACE_MEMORY_ENCRYPTION_KEYS": f"file:{folder / 'keys'}"}


async def _write_chat(memory: Running) -> tuple[str, str]:
    """Write a chat; return its id and that of a run that waits for an answer."""
    chat_id, pending = new_id(), new_id()
    for number in range(CHAT_RUNS):
        run_id = new_id()
        await append(memory.stub, chat_id, run_id, query(f"question {number}"))
        await append(memory.stub, chat_id, run_id, step(answer(PROSE * 10, "m_00000001")), end())
    await append(memory.stub, chat_id, pending, query("and now?"))
    return chat_id, pending


async def _load(memory: Running, chat_id: str, run_id: str) -> None:
    limits = memory_pb2.ModelLimits(context_window_tokens=128_000, output_tokens=1000)
    request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, system="Be brief.", limits=limits)
    await memory.stub.LoadContext(request, timeout=TIMEOUT_S)


async def _count_cpu(memory: Running, call: Callable[[], Awaitable[None]], count: int) -> float:
    before_us = cpu_us(memory.pid)
    for _ in range(count):
        await call()
    return (cpu_us(memory.pid) - before_us) / count

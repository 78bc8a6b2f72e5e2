"""What encryption costs: the service's CPU for an append, and for a LoadContext with and without its chat in memory.

One caller after the other, so that nothing is counted but the calls; CPU, so that a busy machine tells the same.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Awaitable, Callable
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

ROUNDS = 2000
"""Calls that are counted together."""

CHAT_RUNS = 40
"""Chats whose contexts are loaded, and runs of each, of 1,000 characters."""


async def encrypting(folder: Path, server: Server | None) -> Table:
    found = table(
        "Encryption at rest: the service's CPU µs a call, one caller",
        *(
            "to",
            "append, plain",
            "encrypted",
            "LoadContext, plain",
            "encrypted",
            "first LoadContext, plain",
            "encrypted",
        ),
    )
    for engine, place in engines(server).items():
        rows = [await _measure(folder / f"{engine}-{kind}", place(), kind) for kind in ("plain", "encrypted")]
        found.add_row(engine, *(f"{row[column]:.0f}" for column in range(3) for row in rows))
    return found


async def _measure(folder: Path, database_url: str, kind: str) -> list[float]:
    settings = _make_keys(folder) if kind == "encrypted" else {}
    async with running(folder, database_url=database_url, **settings) as memory:
        chats = [await _write_chat(memory) for _ in range(CHAT_RUNS)]
    if settings:
        # So that none is looked for while calls are counted.
        place = {"HEADRACE_DATA_DIR": str(folder), "HEADRACE_DATABASE_URL": database_url}
        command = (sys.executable, "-m", "services.memory.admin_cli", "reencrypt")
        process = await asyncio.create_subprocess_exec(*command, env=os.environ | settings | place)
        assert await process.wait() == 0
    async with running(folder, database_url=database_url, **settings) as memory:
        await _load(memory, *chats[0])  # what is imported and connected at the first call
        before_us = cpu_us(memory.pid)
        for chat in chats[1:]:
            await _load(memory, *chat)
        cold_us = (cpu_us(memory.pid) - before_us) / len(chats[1:])
        chat_id, run_id = new_id(), new_id()
        await append(memory.stub, chat_id, run_id, query("write"))

        async def write() -> None:
            await append(memory.stub, chat_id, run_id, step(answer(PROSE * 4, "m_00000001")))

        async def load() -> None:
            await _load(memory, *chats[0])

        figures = [await _count_cpu(memory, call, ROUNDS) for call in (write, load)]
    return [*figures, cold_us]


def _make_keys(folder: Path) -> dict[str, str]:
    """Make a file of master keys, and return the setting that names it."""
    folder.mkdir(parents=True)
    (folder / "keys").write_text(f"bench:{base64.b64encode(os.urandom(32)).decode()}\n")
    return {"HEADRACE_MEMORY_ENCRYPTION_KEYS": f"file:{folder / 'keys'}"}


async def _write_chat(memory: Running) -> tuple[str, str]:
    """Write a chat, and return its id and that of a run that is to be answered."""
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


async def _count_cpu(memory: Running, call: Callable[[], Awaitable[None]], rounds: int) -> float:
    for _ in range(rounds // 10):
        await call()
    before_us = cpu_us(memory.pid)
    for _ in range(rounds):
        await call()
    return (cpu_us(memory.pid) - before_us) / rounds

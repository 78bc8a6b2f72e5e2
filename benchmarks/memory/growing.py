"""Measures views of growing chats; the cost should grow at most linearly."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Group

from benchmarks.memory.chats import chat_of
from benchmarks.memory.lines import TIMEOUT_S
from benchmarks.memory.service import engines, running
from benchmarks.memory.tables import table
from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.postgresql import Server
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 7
RUN_MESSAGES = 10
LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=10_000_000, output_tokens=1_000)

Call: TypeAlias = Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class Figures:
    """Milliseconds per view, by chat size."""

    by_view: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    async def take(self, view: str, call: Call, rounds: int = ROUNDS) -> None:
        times: list[float] = []
        for _ in range(rounds):
            started = time.perf_counter()
            await call()
            times.append((time.perf_counter() - started) * 1000)
        self.by_view.setdefault(view, []).append(statistics.median(times))

    def table(self, engine: str) -> Table:
        found = table(
            f"As a chat grows, {engine} (ms, median)", "messages", *(f"{size:,}" for size in SIZES), "×10 to the last"
        )
        for view, figures in self.by_view.items():
            cells = [f"{figure:.2f}" for figure in figures]
            found.add_row(view, *cells, f"{figures[-1] / figures[-2]:.1f}")
        return found


async def growing(folder: Path, server: Server | None) -> Group:
    tables: list[Table] = []
    for engine, place in engines(server).items():
        figures = Figures()
        for size in SIZES:
            await _of_size(folder / engine / str(size), place(), size, figures)
        tables.append(figures.table(engine))
    return Group(*tables)


async def _of_size(folder: Path, url: str, size: int, figures: Figures) -> None:
    async with running(folder, database_url=url) as memory:
        one = await chat_of(memory.stub, size, size)
        many = await chat_of(memory.stub, size, RUN_MESSAGES)
    async with running(folder, database_url=url) as memory:
        views = _views(memory.stub, one, many)
        await chat_of(memory.stub, 1, 1)  # loads the vocabulary
        await figures.take("first LoadContext after a start, one run", views["LoadContext, one run"], 1)
        for name, call in views.items():
            await figures.take(name, call)


def _views(stub: MemoryServiceAsyncStub, one: tuple[str, str], many: tuple[str, str]) -> dict[str, Call]:
    def load(chat_id: str, run_id: str) -> Call:
        request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, system="Answer.", limits=LIMITS)
        return lambda: stub.LoadContext(request, timeout=TIMEOUT_S)

    search = memory_pb2.SearchRequest(query="quick brown 12,345 docs")
    return {
        "LoadContext, one run": load(*one),
        "LoadContext, runs of 10": load(*many),
        "GetChat": lambda: stub.GetChat(memory_pb2.GetChatRequest(chat_id=many[0]), timeout=TIMEOUT_S),
        "ListChats": lambda: stub.ListChats(memory_pb2.ListChatsRequest(), timeout=TIMEOUT_S),
        "Search": lambda: stub.Search(search, timeout=TIMEOUT_S),
    }

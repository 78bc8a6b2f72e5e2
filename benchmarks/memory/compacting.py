"""Measures compaction without the model's time: a script returns the summary at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cpu import peak_rss_mb, rss_mb
from benchmarks.memory.chats import chat_of
from benchmarks.memory.lines import PROSE, TIMEOUT_S
from benchmarks.memory.service import running
from benchmarks.memory.summariser import summarising
from benchmarks.memory.tables import table
from headrace.streams import reading
from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

SIZES = (10, 100, 1_000, 10_000)
SECTIONS = "\n".join(f"{number}. Section {number}: {PROSE}" for number in range(1, 10))
LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=10_000_000, output_tokens=1_000)


async def compacting(folder: Path) -> Table:
    found = table("Compaction without the model's time", "messages", "ms", "MB added", "tokens", "to", "left", "×10")
    times: list[float] = []
    async with summarising(folder, SECTIONS) as address:
        for size in SIZES:
            async with running(folder / str(size), address) as memory:
                chat_id, run_id = await chat_of(memory.stub, size, size)
                await _loaded(memory.stub, chat_id, run_id)
                before_mb = rss_mb(memory.pid)
                started = time.perf_counter()
                done = await _compacted(memory.stub, chat_id, run_id)
                elapsed_ms = (time.perf_counter() - started) * 1000
                added_mb = max(0, peak_rss_mb(memory.pid) - before_mb)
            found.add_row(
                f"{size:,}", f"{elapsed_ms:.0f}", f"{added_mb:.0f}", *_outcome(done), _ratio(times, elapsed_ms)
            )
            times.append(elapsed_ms)
    return found


def _outcome(done: memory_pb2.CompactDelta) -> tuple[str, str, str]:
    if not done.HasField("complete"):
        return str(done.WhichOneof("delta")), (done.fail.reason or done.fallback.reason), ""
    pre, post = done.complete.pre_tokens, done.complete.post_tokens
    return f"{pre:,}", f"{post:,}", f"{post / pre:.0%}"


def _ratio(times: list[float], elapsed_ms: float) -> str:
    return f"{elapsed_ms / times[-1]:.1f}" if times else ""


async def _loaded(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str) -> None:
    """Load the context, as a run does before each turn."""
    request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, limits=LIMITS)
    await stub.LoadContext(request, timeout=TIMEOUT_S)


async def _compacted(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str) -> memory_pb2.CompactDelta:
    """Compact the chat and return the last delta."""
    request = memory_pb2.CompactRequest(chat_id=chat_id, run_id=run_id, trigger="manual", limits=LIMITS)
    async with reading(stub.Compact(request, timeout=TIMEOUT_S)) as deltas:
        return [delta async for delta in deltas][-1]

"""Recap: the same task of twelve steps with and without it, in the tokens that its requests have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory.lines import PROSE, TIMEOUT_S, append, call, new_id, query, result, step
from benchmarks.memory.service import running
from benchmarks.memory.tables import table
from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

STEPS = 12
LIMITS = memory_pb2.ModelLimits(provider_key="p", model="gpt-4o", context_window_tokens=128_000, output_tokens=1_000)
SYSTEM = "You are an agent that reads files and answers. " * 20


async def recap(folder: Path) -> Table:
    found = table(
        f"Recap: a task of {STEPS} steps, each with one tool result", "result", "tokens without", "with recap", "less"
    )
    async with running(folder) as memory:
        for chars in (500, 2_000, 8_000):
            without = await _task(memory.stub, chars, None)
            with_it = await _task(memory.stub, chars, memory_pb2.RecapSettings())
            less = f"{1 - with_it / without:.0%}"
            found.add_row(f"{chars:,} characters", f"{without:,}", f"{with_it:,}", less)
    return found


async def _task(stub: MemoryServiceAsyncStub, chars: int, settings: memory_pb2.RecapSettings | None) -> int:
    """Input tokens of the whole run, as memory counts them."""
    chat_id, run_id = new_id(), new_id()
    await append(stub, chat_id, run_id, query("Read the twelve chapters and tell me who the murderer is."))
    tokens = 0
    for index in range(STEPS + 1):
        request = memory_pb2.LoadContextRequest(
            chat_id=chat_id, run_id=run_id, system=SYSTEM, limits=LIMITS, recap=settings
        )
        tokens += (await stub.LoadContext(request, timeout=TIMEOUT_S)).tokens
        asked = call(f"call_{index}", "read_file", f'{{"path": "chapter-{index}.md"}}', f"m_{index:08}")
        text = (f"Chapter {index}. " + PROSE * (chars // len(PROSE) + 1))[:chars]
        await append(stub, chat_id, run_id, step(asked), step(result(f"call_{index}", "read_file", text)))
    return tokens

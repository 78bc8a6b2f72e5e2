"""Recap: token use of the same tasks with and without it, and their cost if the provider caches prefixes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory.lines import PROSE, TIMEOUT_S, append, call, new_id, query, result, step
from benchmarks.memory.prefix_cost import PrefixCost
from benchmarks.memory.service import running
from benchmarks.memory.tables import table
from headrace.v1 import llm_pb2, memory_pb2
from services.tools.builtin import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

STEPS = (6, 12, 24)
CHARS = (500, 2_000, 6_000)

MODEL = "gpt-4o"
LIMITS = memory_pb2.ModelLimits(provider_key="p", model=MODEL, context_window_tokens=128_000, output_tokens=1_000)
SYSTEM = "You are an agent that reads files and answers. " * 20

PARAMETERS = '{"type":"object","properties":{"path":{"type":"string","description":"File of the workspace"}}}'

READ_FILE = llm_pb2.ToolSchema(name="read_file", description="Read a file.", parameters=PARAMETERS)

CORE = [
    llm_pb2.ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in BUILTIN
]

TOOLS = {"one": [READ_FILE], "core": CORE}

READERS = [
    llm_pb2.ToolSchema(name=name, description="Reads again what you are not shown any more. " * 9, parameters="{}")
    for name in ("read_history", "read_result")
]
"""Tools to read old messages and results again; their descriptions are as long as the orchestrator's."""


async def recap(folder: Path) -> Table:
    found = table(
        "Recap: tasks whose steps have one tool result each",
        "tools",
        "steps",
        "result",
        "tokens without",
        "with recap",
        "less",
        "cost with a cache",
    )
    async with running(folder) as memory:
        for name, steps, chars in product(TOOLS, STEPS, CHARS):
            without = await spend(memory.stub, steps, chars, None, TOOLS[name])
            # As many as the agent's maxSteps allows.
            settings = memory_pb2.RecapSettings(steps_max=steps)
            with_it = await spend(memory.stub, steps, chars, settings, TOOLS[name])
            found.add_row(
                name,
                f"{steps}",
                f"{chars:,} characters",
                f"{without.tokens:,}",
                f"{with_it.tokens:,}",
                f"{1 - with_it.tokens / without.tokens:.0%}",
                f"{with_it.cost / without.cost - 1:+.1%}",
            )
    return found


async def spend(
    stub: MemoryServiceAsyncStub,
    steps: int,
    chars: int,
    settings: memory_pb2.RecapSettings | None,
    tools: Sequence[llm_pb2.ToolSchema],
) -> PrefixCost:
    """Run a task and return the cost of its requests, including its tools for rereading."""
    has_left = False
    chat_id, run_id = new_id(), new_id()
    await append(stub, chat_id, run_id, query("Read the chapters and tell me who the murderer is."))
    spent = PrefixCost()
    for index in range(steps + 1):
        request = memory_pb2.LoadContextRequest(
            chat_id=chat_id, run_id=run_id, system=SYSTEM, limits=LIMITS, recap=settings
        )
        # Like an orchestrator, which includes these tools from then on.
        request.tools.extend([*tools, *READERS] if has_left else tools)
        request.history_tools.extend([] if has_left else READERS)
        loaded = await stub.LoadContext(request, timeout=TIMEOUT_S)
        has_left = has_left or loaded.has_left
        spent.add(loaded, [*tools, *READERS] if has_left else tools)
        asked = call(f"call_{index}", "read_file", f'{{"path": "chapter-{index}.md"}}', f"m_{index:08}")
        text = (f"Chapter {index}. " + PROSE * (chars // len(PROSE) + 1))[:chars]
        await append(stub, chat_id, run_id, step(asked), step(result(f"call_{index}", "read_file", text)))
    return spent

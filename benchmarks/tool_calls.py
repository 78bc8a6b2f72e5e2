"""What a tool call costs above the command itself: python -m benchmarks.tool_calls

Each tier runs `true` over a real tools service; the floor is the same program started without one. CPU time is by the
operating system's accounting of children that have ended, so that a noisy machine does not decide; what has run in a
process namespace, and an interpreter that lives on, are not among them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
import uvloop
from rich.console import Console
from rich.table import Table

from headrace.streams import reading
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox, try_tier
from services.tools.server import tool_server

ROUNDS = 40
TOGETHER = 20

Call = Callable[[], Awaitable[None]]

console = Console(width=120)


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    table = Table(title=f"One call of `true`: {ROUNDS} one by one, then {TOGETHER} at once (ms)", title_justify="left")
    for name in ("tier", "tool", "wall p50", "wall p95", "CPU", "at once: first", "p50", "last", "CPU each"):
        table.add_column(name, justify="left" if name in ("tier", "tool") else "right")
    table.add_row("–", "the command itself", *await _figures(_bare))
    for tier in ("process", "bubblewrap"):
        if problem := await try_tier(tier):
            console.print(f"{tier} does not work here: {problem}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            await _measure(table, Sandbox(tier), Path(folder))
    console.print(table)


async def _measure(table: Table, sandbox: Sandbox, folder: Path) -> None:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    config = Config(server=settings, config_dir=folder, data_dir=folder, interpreters_max=TOGETHER + 1)
    async with (
        tool_server(config, sandbox, Catalogue(folder / "tools")) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        stub = tools_pb2_grpc.ToolServiceStub(channel)
        table.add_row(str(sandbox.tier), "_bash_", *await _figures(_calling(stub, "_bash_", {"command": "true"})))
        fresh = _calling(stub, "python", {"code": "1"})
        table.add_row(str(sandbox.tier), "python, a new run", *await _figures(fresh, rounds=10))
        again = _calling(stub, "python", {"code": "1"}, run_id=str(uuid.uuid4()))
        await again()
        table.add_row(str(sandbox.tier), "python, the same run", *await _figures(again))


def _calling(stub: Any, tool: str, arguments: dict[str, str], run_id: str = "") -> Call:
    chat_id = str(uuid.uuid4())

    async def call() -> None:
        request = tools_pb2.ExecuteRequest(
            run_id=run_id or str(uuid.uuid4()),
            tool_call_id="call",
            tool_name=tool,
            arguments=json.dumps(arguments),
            chat_id=chat_id,
        )
        async with reading(stub.Execute(request)) as deltas:
            async for delta in deltas:
                assert not delta.HasField("result") or delta.result.ok, delta

    return call


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "true")
    await process.wait()


async def _figures(call: Call, rounds: int = ROUNDS) -> list[str]:
    await call()
    before_ms = _children_cpu_ms()
    alone = sorted([await _timed_ms(call) for _ in range(rounds)])
    between_ms = _children_cpu_ms()
    together = sorted(await asyncio.gather(*(_timed_ms(call) for _ in range(TOGETHER))))
    after_ms = _children_cpu_ms()
    figures = (
        statistics.median(alone),
        alone[int(len(alone) * 0.95)],
        (between_ms - before_ms) / rounds,
        together[0],
        statistics.median(together),
        together[-1],
        (after_ms - between_ms) / TOGETHER,
    )
    return [f"{figure:.1f}" for figure in figures]


async def _timed_ms(call: Call) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


def _children_cpu_ms() -> float:
    """Of children that have ended, theirs included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


if __name__ == "__main__":
    uvloop.run(main())

"""What a run costs apart from its model and its tools, and what it leaves behind: `python -m benchmarks.runs`

A REACT run of three steps (two tools, then the answer) against a scripted model and scripted tools in this process; the
orchestrator and the memory service, with its disk, are processes of their own. Prints the CPU time of each per run and
its resident memory on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.cpu import cpu_us, rss_mb
from headrace.client import Client
from headrace.v1 import llm_pb2, llm_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc

RUNS = 10_000
AT_ONCE = 8
SAMPLES = 5
WARM_UP_RATIO = 0.2
"""Of the runs: what fills once (caches, thread pools, the allocator) is no slope."""

WORDS = 20
"""Deltas of a turn."""

AGENT = {
    "mode": "REACT",
    "modelConfig": {"providerKey": "scripted", "model": "m"},
    "toolConfig": {"backends": ["look"]},
    "react": {"systemPrompt": "Answer."},
}


class Model(llm_pb2_grpc.LlmServiceServicer):
    """Calls the tool in the first two turns of a run and answers in the third."""

    async def ListModels(self, request: llm_pb2.ListModelsRequest, context: Any) -> llm_pb2.ListModelsResponse:
        model = llm_pb2.ModelInfo(model=request.model, context_window_tokens=128_000)
        return llm_pb2.ListModelsResponse(models=[model])

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        turn = sum(message.role == "tool" for message in request.messages)
        for word in range(WORDS):
            yield llm_pb2.LlmDelta(content=f"word {word} ")
        if turn < 2:
            arguments = json.dumps({"n": turn})
            yield llm_pb2.LlmDelta(
                tool_call=llm_pb2.ToolCallDelta(index=0, id=f"call_{turn}", name="look", arguments=arguments)
            )
        yield llm_pb2.LlmDelta(usage={"input_tokens": 100, "output_tokens": WORDS})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
        yield llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="tool_calls" if turn < 2 else "stop"))


class Tools(tools_pb2_grpc.ToolServiceServicer):
    """One tool, which answers at once."""

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        look = tools_pb2.Tool(name="look", parameters='{"type":"object"}', kind="backend", effect="read")
        return tools_pb2.ListToolsResponse(tools=[look])

    async def ListSkills(self, request: tools_pb2.ListSkillsRequest, context: Any) -> tools_pb2.ListSkillsResponse:
        return tools_pb2.ListSkillsResponse()

    async def Execute(self, request: tools_pb2.ExecuteRequest, context: Any) -> AsyncGenerator[tools_pb2.ToolDelta]:
        yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="seen"))


async def main(runs: int, minutes: float) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with _processes(Path(folder)) as (address, pids):
            before = {name: cpu_us(pid) for name, pid in pids.items()}
            started = time.monotonic()
            samples = await _run(address, pids, runs, started + minutes * 60)
            elapsed_s = time.monotonic() - started
            done = samples[-1][0]
            cpu_ms = {name: (cpu_us(pid) - before[name]) / done / 1000 for name, pid in pids.items()}
    title = (
        f"{done:,} of {runs:,} REACT runs of 3 steps in {elapsed_s:.0f} s, {AT_ONCE} at once; resident MB after so many"
    )
    Console(width=120).print(_table(title, samples, cpu_ms))


@asynccontextmanager
async def _processes(folder: Path) -> AsyncGenerator[tuple[str, dict[str, int]]]:
    (folder / "config" / "agents").mkdir(parents=True)
    (folder / "config" / "agents" / "react.json").write_text(json.dumps(AGENT))
    model, tools = Model(), Tools()  # pyright: ignore[reportAbstractUsage] - a run asks for these RPCs alone
    async with AsyncExitStack() as stack:
        peers = [
            GrpcService("headrace.v1.LlmService", model, llm_pb2_grpc.add_LlmServiceServicer_to_server),
            GrpcService("headrace.v1.ToolService", tools, tools_pb2_grpc.add_ToolServiceServicer_to_server),
        ]
        here = await stack.enter_async_context(serving_grpc(ServerSettings(listen=f"unix:{folder}/peers.sock"), peers))
        shared = {"HEADRACE_CONFIG_DIR": str(folder / "config"), "HEADRACE_DATA_DIR": str(folder / "data")}
        addresses = {name: f"unix:{folder}/{name}.sock" for name in ("memory", "orchestrator")}
        settings = {
            "MEMORY_LISTEN": addresses["memory"],
            "MEMORY_LLM_GATEWAY_ADDRESS": here.addresses[0],
            "ORCHESTRATOR_LISTEN": addresses["orchestrator"],
            "ORCHESTRATOR_MEMORY_ADDRESS": addresses["memory"],
            "ORCHESTRATOR_LLM_GATEWAY_ADDRESS": here.addresses[0],
            "ORCHESTRATOR_TOOLS_ADDRESS": here.addresses[0],
        }
        env = os.environ | shared | {f"HEADRACE_{name}": value for name, value in settings.items()}
        pids: dict[str, int] = {}
        for name in addresses:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"services.{name}", env=env, stderr=asyncio.subprocess.DEVNULL
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.terminate)
            pids[name] = process.pid
        async with open_channel(addresses["orchestrator"]) as channel, asyncio.timeout(60):
            await channel.channel_ready()
        yield addresses["orchestrator"], pids


async def _run(address: str, pids: dict[str, int], runs: int, until_s: float) -> list[tuple[int, dict[str, float]]]:
    """Resident memory of each process after so many runs, each of which has a chat of its own."""
    samples: list[tuple[int, dict[str, float]]] = []
    begun = done = 0

    async def one_after_another(client: Client) -> None:
        nonlocal begun, done
        while begun < runs and time.monotonic() < until_s:
            begun += 1
            async with client.ask("go", agent_key="react") as deltas:
                async for delta in deltas:
                    assert not delta.HasField("run_error"), delta
            done += 1
            if done % max(runs // 100, 1) == 0:
                samples.append((done, {name: rss_mb(pid) for name, pid in pids.items()}))

    async with Client(address) as client, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_another(client))
    return [*samples, (done, {name: rss_mb(pid) for name, pid in pids.items()})]


def _table(title: str, samples: list[tuple[int, dict[str, float]]], cpu_ms: dict[str, float]) -> Table:
    table = Table(title=title, title_justify="left")
    done = samples[-1][0]
    marks = [next(sample for sample in samples if sample[0] >= done * part / SAMPLES) for part in range(SAMPLES + 1)]
    names = ("process", "CPU ms a run", *(f"{count:,}" for count, _ in marks), "bytes a run")
    for name in names:
        table.add_column(name, justify="left" if name == "process" else "right")
    warm = [sample for sample in samples if sample[0] >= done * WARM_UP_RATIO]
    for name, spent_ms in cpu_ms.items():
        points = [(count, rss[name] * 2**20) for count, rss in warm]
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else float("nan")
        table.add_row(name, f"{spent_ms:.1f}", *(f"{rss[name]:.1f}" for _, rss in marks), f"{slope:.0f}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--minutes", type=float, default=20.0, help="stop then, wherever it is")
    given = parser.parse_args()
    uvloop.run(main(given.runs, given.minutes))

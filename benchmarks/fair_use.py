"""Does one tenant's rush delay another tenant? `python -m benchmarks.fair_use`

Tenant B asks one question after another, first alone and then while tenant A starts many runs at once. Prints
the median and the worst time of B's runs to their first event, to their start, and to their first delta.
HEADRACE_TRANSPORT selects the transport of all services. With `--concurrency 2 --runs 60` the provider answers
two calls at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.processes import simulated_suite
from headrace.client import Client
from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2
from services.runtime.process.transport import get_transport
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.push_stream import push_messages

QUERY = "/headrace.v1.AgentService/Query"
MODEL = "bench-64x30ms"
KEYS = {"a": "key-of-tenant-a-in-this-benchmark", "b": "key-of-tenant-b-in-this-benchmark"}
PAUSE_S = 0.1
WARM_UP = 20


@dataclass
class Times:
    """Times of B's runs, in milliseconds."""

    first_event: list[float] = field(default_factory=list[float])
    started: list[float] = field(default_factory=list[float])
    first_delta: list[float] = field(default_factory=list[float])


async def main(runs: int, questions: int, quota: dict[str, int]) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        os.environ.update({"HEADRACE_AUTH": "api_key", "HEADRACE_AUTH_API_KEYS_FILE": str(_keys_file(folder))})
        async with simulated_suite(folder, [MODEL], quota=quota) as address, Client(address, token=KEYS["b"]) as b:
            await _ask(b, WARM_UP)
            quiet = await _ask(b, questions)
            rush = asyncio.create_task(_rush_of_its_own(address, runs))
            rushed = await _ask(b, questions, until=rush)
            ended = await rush
    Console(width=120).print(_table(quiet, rushed, runs, ended))


async def _rush_of_its_own(address: str, runs: int) -> str:
    """Run tenant A in a separate process; return how its runs ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.fair_use",
        "--runs",
        str(runs),
        "--rush",
        address,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode().strip()


async def _ask(client: Client, questions: int, until: asyncio.Task[str] | None = None) -> Times:
    """Ask `questions` questions, or until a task is done, one after another."""
    times = Times()
    while len(times.started) < questions if until is None else not until.done():
        asked = time.perf_counter()
        async with client.ask("go", agent_key=MODEL, on_disconnect="cancel") as deltas:
            async for delta in deltas:
                passed_ms = (time.perf_counter() - asked) * 1000
                if delta.HasField("request_query"):
                    times.first_event.append(passed_ms)
                if delta.HasField("run_start"):
                    times.started.append(passed_ms)
                elif delta.HasField("content_delta"):
                    times.first_delta.append(passed_ms)
                    break
        await asyncio.sleep(PAUSE_S)
    return times


async def rush(address: str, runs: int) -> None:
    """Start all runs at once and read each to its end; a refused run is retried after the wait in its error."""
    ended = Counter[str]()
    async with open_channel(address) as channel, asyncio.TaskGroup() as group:
        # Any: a bytes stream has no stub.
        query: Any = channel.unary_stream(
            QUERY, request_serializer=agent_pb2.QueryRequest.SerializeToString, response_deserializer=None
        )
        for _ in range(runs):
            group.create_task(_one(query, ended))
    print(", ".join(f"{count} {name}" for name, count in sorted(ended.items())))


async def _one(query: Any, ended: Counter[str]) -> None:
    request = agent_pb2.QueryRequest(message="go", agent_key=MODEL)
    while True:
        try:
            await push_messages(query(request, metadata=(("x-api-key", KEYS["a"]),)), lambda _: None)
        except HeadraceError as error:
            ended[error.reason] += 1
            if error.retry_after_s is None:
                return
            await asyncio.sleep(error.retry_after_s)
        else:
            ended["ended"] += 1
            return


def _keys_file(folder: Path) -> Path:
    keys = [
        {"sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": tenant, "user": "bench"}
        for tenant, key in KEYS.items()
    ]
    path = folder / "api_keys.json"
    path.write_text(json.dumps({"keys": keys}))
    return path


def _table(quiet: Times, rushed: Times, runs: int, ended: str) -> Table:
    title = f"tenant B, while tenant A has {runs:,} runs ({get_transport()}; A's: {ended})"
    table = Table("ms", "alone", "beside A", "change", "worst alone", "worst beside A", title=title)
    for name in ("first_event", "started", "first_delta"):
        alone, beside = getattr(quiet, name), getattr(rushed, name)
        before, after = statistics.median(alone), statistics.median(beside)
        table.add_row(
            f"{name} (n={len(beside)})",
            *(f"{before:.1f}", f"{after:.1f}", f"{(after / before - 1) * 100:+.0f} %"),
            *(f"{max(alone):.1f}", f"{max(beside):.1f}"),
        )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="of tenant A")
    parser.add_argument("--questions", type=int, default=100, help="of tenant B, alone")
    parser.add_argument("--rush", metavar="ADDRESS", help="be tenant A alone")
    parser.add_argument("--concurrency", type=int, help="calls at a time that the provider takes")
    given = parser.parse_args()
    quota = {"concurrency": given.concurrency} if given.concurrency else {}
    uvloop.run(rush(given.rush, given.runs) if given.rush else main(given.runs, given.questions, quota))

"""Measures the cost of runs that wait for people: `python -m benchmarks.waiting`

Many runs (`--gates`) of one agent each show a form and wait. Measured are the memory that each takes in the
orchestrator and the memory service, the CPU time of all processes at rest, the time of the first page of
ListGates, and the time from an answer to the end of its run; with the embedded store, and with PostgreSQL if
the machine has it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from benchmarks.cpu import cpu_us, rss_mb
from benchmarks.memory.tables import table
from benchmarks.postgresql import programs
from benchmarks.postgresql import running as postgresql
from benchmarks.processes import simulating, starting_suite
from headrace.client import Client
from headrace.v1 import gates_pb2

TOOLS = Path(__file__).parents[1] / "examples" / "tools"

AGENT: dict[str, Any] = {
    "mode": "REACT",
    "modelConfig": {"providerKey": "sim", "model": "sim-1"},
    "toolConfig": {"frontends": ["confirm_dialog"]},
    "react": {"systemPrompt": "You take orders."},
}

WAIT_MS = 3_600_000
AT_ONCE = 40
WARM_UP = 500
"""Runs before the measurement, so that one-time memory of the processes is not counted, nor that of runs not
yet parked: as many runs are live at a time as later.
"""

PAGES = 100

ANSWER = '{"choice": "Yes"}'

SERVICES = ("orchestrator", "memory", "llm_gateway", "tools", "facade")

console = Console(width=120)


@dataclass(frozen=True, slots=True)
class Seen:
    gates: int
    added_kb: dict[str, float]
    """Resident memory per gate, by service."""
    rest_cpu_ms_per_s: dict[str, float]
    first_page_ms: Sequence[float]
    answer_ms: Sequence[float]
    """From an answer to the run's end."""
    opened_per_s: float


async def measure(folder: Path, given: argparse.Namespace, environment: dict[str, str]) -> Seen:
    async with simulating(folder) as (base_url, _):
        settings = {"HEADRACE_ORCHESTRATOR_RUNS_MAX": str(2 * given.gates + WARM_UP), **environment}
        settings["HEADRACE_ORCHESTRATOR_PARK_AFTER_S"] = str(given.park_after_s)
        (folder / "config" / "tools").mkdir(parents=True)
        agents = folder / "config" / "agents"
        agents.mkdir()
        _copy_tool(folder / "config" / "tools")
        provider = f'{{"providers": [{{"key": "sim", "protocol": "openai", "baseUrl": "{base_url}", "models": '
        (folder / "config" / "providers.json").write_text(provider + '[{"name": "sim-1"}]}]}')
        starting = starting_suite(folder, base_url, [], agents={"asker": AGENT}, form="--split", environment=settings)
        async with starting as suite, Client(suite.grpc) as client:
            await open_gates(client, WARM_UP)
            await asyncio.sleep(given.settle_s)
            before = {name: rss_mb(suite.pids[name]) for name in SERVICES}
            began = time.monotonic()
            await open_gates(client, given.gates)
            opened_per_s = given.gates / (time.monotonic() - began)
            await asyncio.sleep(given.settle_s)
            added = {name: (rss_mb(suite.pids[name]) - before[name]) * 1024 / given.gates for name in SERVICES}
            spent = {name: cpu_us(suite.pids[name]) for name in SERVICES}
            await asyncio.sleep(given.rest_s)
            rest = {name: (cpu_us(suite.pids[name]) - spent[name]) / 1000 / given.rest_s for name in SERVICES}
            pages = [await time_page(client) for _ in range(PAGES)]
            answers = [await time_answer(client, gate) for gate in (await client.gates()).gates]
            return Seen(given.gates, added, rest, pages, answers, opened_per_s)


def _copy_tool(folder: Path) -> None:
    """Copy the example form, with a timeout that outlasts the benchmark."""
    shutil.copy(TOOLS / "confirm_dialog.html", folder)
    made = json.loads((TOOLS / "confirm_dialog.frontend").read_text())
    made["tools"][0]["timeoutMs"] = WAIT_MS
    (folder / "confirm_dialog.frontend").write_text(json.dumps(made))


async def open_gates(client: Client, count: int) -> None:
    left = iter(range(count))

    async def ask() -> None:
        for _ in left:
            async with client.ask("Please book a table", agent_key="asker") as events:
                async for event in events:
                    if event.HasField("gate_open"):
                        break
                else:
                    raise RuntimeError(f"no gate was opened: {events.state.end}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(ask())


async def time_page(client: Client) -> float:
    began = time.perf_counter()
    page = await client.gates()
    assert len(page.gates) == 50
    return (time.perf_counter() - began) * 1000


async def time_answer(client: Client, gate: gates_pb2.Gate) -> float:
    began = time.perf_counter()
    answer = await client.answer_gate(gate.run_id, gate.gate_id, ANSWER)
    assert answer.status == "accepted", answer
    async with client.attach(gate.run_id, 0) as events:
        kinds = [event.WhichOneof("payload") async for event in events]
    assert kinds[-1] == "run_complete", kinds
    return (time.perf_counter() - began) * 1000


async def main(given: argparse.Namespace) -> None:
    engines = ["embedded"] if programs() is None else ["embedded", "PostgreSQL"]
    found = table(
        f"{given.gates:,} waiting gates",
        *("store", "opened/s", "orchestrator KB/gate", "memory KB/gate", "CPU ms/s at rest: orchestrator", "memory"),
        *("first page ms p50", "p99", "answered ms p50", "p99"),
    )
    for engine in engines:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
            environment = dict[str, str]()
            if engine == "PostgreSQL":
                environment["HEADRACE_DATABASE_URL"] = stack.enter_context(postgresql()).url()
            seen = await measure(Path(folder), given, environment)
        found.add_row(
            engine,
            f"{seen.opened_per_s:,.0f}",
            *(f"{seen.added_kb[name]:.1f}" for name in SERVICES[:2]),
            *(f"{seen.rest_cpu_ms_per_s[name]:.1f}" for name in SERVICES[:2]),
            f"{statistics.median(seen.first_page_ms):.1f}",
            f"{statistics.quantiles(seen.first_page_ms, n=100)[-1]:.1f}",
            f"{statistics.median(seen.answer_ms):.0f}",
            f"{statistics.quantiles(seen.answer_ms, n=100)[-1]:.0f}",
        )
    console.print(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.waiting", description=__doc__)
    parser.add_argument("--gates", type=int, default=10_000)
    parser.add_argument("--settle-s", type=float, default=10.0)
    parser.add_argument("--park-after-s", type=float, default=5.0, help="below 0: runs are not parked")
    parser.add_argument("--rest-s", type=float, default=20.0)
    uvloop.run(main(parser.parse_args()))

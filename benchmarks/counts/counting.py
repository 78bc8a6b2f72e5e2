"""Counts single runs of a process that has the hook. The provider sends a delta when the reader has the one before, so
that every run takes the same steps on a busy machine, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sysconfig
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.entrances import provider
from benchmarks.entrances.arrivals import STAMP
from benchmarks.entrances.ways import FRAMEWORKS, PEERS, REACT, REACT_AGENT, make_chat, make_query
from benchmarks.peers.environment import install, read_version
from benchmarks.processes import started, starting_suite
from headrace.client import Client
from services.runtime.files import file_watch

HOOK = Path(__file__).parent / "hook"
PLACES = {
    f"{sysconfig.get_path('purelib')}/": "site:",
    f"{sysconfig.get_path('stdlib')}/": "std:",
    f"{Path(__file__).parents[2]}/": "",
}
"""Folders that a function's name omits."""

SHORT, LONG = "paced-20x0ms", "paced-60x0ms"
EXTRA_DELTAS = 40
"""Deltas that a LONG run has more than a SHORT one."""

WARM_RUNS, RUNS = 4, 10
IDLE_S = 1.5
QUIET_S = 0.3
"""Time that a process gets for what is left to do after its answers have ended."""

NEVER_MS = 3_600_000

CLOCK = f"{Path(file_watch.__file__)}:_follow_changes"
"""A suite calls this function regularly, run or not: it shows how much was done at rest, on a slow machine, too."""

NAMES = ("C calls", "SQL statements", "fsyncs", "bytes written", "thread switches")
"""Counters of the hook other than Python functions."""

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Counts:
    figures: Figures
    functions: Mapping[str, float]
    """Calls of each Python function, by file and qualified name."""

    def per_delta(self, short: Counts) -> Counts:
        """Return the functions that each of the EXTRA_DELTAS calls that this run has more than `short`."""
        more = {name: calls - short.functions.get(name, 0) for name, calls in self.functions.items()}
        functions = {name: float(calls) for name, total in more.items() if (calls := round(total / EXTRA_DELTAS))}
        return Counts({"Python calls": sum(functions.values())} | _count_breadth(functions), functions)


class SteppedConnection(provider.Connection):
    """Sends a delta when the reader calls `step`, as often as it has a delta."""

    waiting: list[Callable[[], None]]

    def _await_next(self) -> None:
        self.waiting.append(self._send_due)


class Steps:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def make_connection(self) -> SteppedConnection:
        connection = SteppedConnection()
        connection.waiting = self.waiting
        return connection

    def take(self, deltas: int) -> None:
        for _ in range(deltas):
            if self.waiting:
                self.waiting.pop()()


class CountedProcess:
    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder = pid, folder
        self._files = 0
        self._idle: dict[str, int] = {}
        """Counts of IDLE_S without a run."""

    async def count(self, ask: Callable[[], Awaitable[object]]) -> Counts:
        """Return what one of RUNS questions costs, one after another, without what the process does at rest."""
        for _ in range(WARM_RUNS):
            await ask()
        await asyncio.sleep(QUIET_S)
        self._idle = self._idle or await self._count_while(asyncio.sleep(IDLE_S))
        counts = await self._count_while(_ask_and_rest(ask))
        rest = counts.get(CLOCK, 0) / self._idle[CLOCK] if CLOCK in self._idle else 0
        costs = {name: (count - self._idle.get(name, 0) * rest) / RUNS for name, count in counts.items()}
        functions = {_shorten(name): cost for name, cost in costs.items() if ":" in name and cost >= 0.5}
        figures: Figures = {"Python calls": sum(cost for name, cost in costs.items() if ":" in name)}
        figures |= {name: costs.get(name, 0.0) for name in NAMES}
        return Counts(figures | _count_breadth(functions), functions)

    async def count_syscalls(self, ask: Callable[[], Awaitable[object]]) -> float | None:
        """Return the system calls of a run; None without strace."""
        if shutil.which("strace") is None:
            return None
        out = self._folder / "strace"
        command = ("strace", "-f", "-c", "-o", str(out), "-p", str(self._pid))
        tracing = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        await asyncio.sleep(0.5)
        for _ in range(RUNS):
            await ask()
        tracing.send_signal(signal.SIGINT)
        await tracing.wait()
        total = out.read_text().splitlines()[-1].split() if out.exists() else []
        return int(total[3]) / RUNS if total and total[-1] == "total" else None

    async def _count_while(self, work: Awaitable[object]) -> dict[str, int]:
        os.kill(self._pid, signal.SIGUSR1)
        await asyncio.sleep(0.02)
        await work
        self._files += 1
        path = self._folder / f"{self._pid}-{self._files}.json"
        os.kill(self._pid, signal.SIGUSR1)
        async with asyncio.timeout(10):
            await asyncio.to_thread(_wait_for, path)
        return json.loads(path.read_text())


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.002)


async def _ask_and_rest(ask: Callable[[], Awaitable[object]]) -> None:
    for _ in range(RUNS):
        await ask()
    await asyncio.sleep(QUIET_S)


def _count_breadth(functions: Mapping[str, float]) -> Figures:
    return {"functions": len(functions), "files": len({name.rpartition(":")[0] for name in functions})}


def _shorten(name: str) -> str:
    for folder, short in PLACES.items():
        if name.startswith(folder):
            return short + name.removeprefix(folder)
    return name


Asks = Mapping[str, Callable[[], Awaitable[object]]]
"""Functions that count, by name."""


def _list_asks(ask: Callable[[str], Awaitable[object]]) -> Asks:
    return {"short run": lambda: ask(SHORT), "long run": lambda: ask(LONG), "REACT run": lambda: ask(REACT)}


@asynccontextmanager
async def opening_suite(folder: Path) -> AsyncGenerator[tuple[CountedProcess, Mapping[str, Asks]]]:
    """Yield a suite in one process, and what to ask at each of its entrances."""
    steps = Steps()
    server, base_url = await provider.listen(steps.make_connection)
    environment = _hook(folder) | {"HEADRACE_ORCHESTRATOR_REFRESH_INTERVAL_MS": str(NEVER_MS)}
    agents = {REACT: REACT_AGENT | {"modelConfig": {"providerKey": "sim", "model": SHORT}}}
    starting = starting_suite(
        folder, base_url, [SHORT, LONG], agents=agents, form="--one-process", environment=environment
    )
    async with server, starting as suite, Client(suite.grpc) as client, aiohttp.ClientSession(suite.http) as http:
        run_id = ""

        async def ask_grpc(key: str) -> None:
            nonlocal run_id
            async with client.ask("go", agent_key=key) as deltas:
                async for delta in deltas:
                    assert not delta.HasField("run_error"), delta
                    run_id = delta.run_start.run_id or run_id
                    steps.take(delta.HasField("content_delta"))

        async def attach_grpc() -> None:
            async with client.attach(run_id) as deltas:
                assert [delta async for delta in deltas]

        async def attach_sse() -> None:
            await _read(http.get("/api/attach", params={"runId": run_id}), steps)

        async def ask_sse(key: str) -> None:
            await _read(http.post("/api/query", json=make_query(key)), steps)

        async def ask_chat(key: str) -> None:
            await _read(http.post("/v1/chat/completions", json=make_chat(key)), steps)

        yield (
            CountedProcess(suite.pids["suite"], folder),
            {
                "gRPC": {**_list_asks(ask_grpc), "attach": attach_grpc},
                "SSE": {**_list_asks(ask_sse), "attach": attach_sse},
                "OpenAI adapter": _list_asks(ask_chat),
            },
        )


@asynccontextmanager
async def opening_by_hand(folder: Path) -> AsyncGenerator[tuple[CountedProcess, Mapping[str, Asks]]]:
    """Yield the hand-written server, which keeps no log; raises Unavailable without its packages."""
    steps = Steps()
    server, base_url = await provider.listen(steps.make_connection)
    python = str(await install(FRAMEWORKS, read_version(FRAMEWORKS, "langgraph")) / "python")
    program = (str(PEERS / "programs" / "by_hand.py"), f"{base_url}/chat/completions")
    async with (
        server,
        started(*program, python=python, **_hook(folder)) as (pid, line),
        aiohttp.ClientSession(line.strip()) as http,
    ):

        async def ask(key: str) -> None:
            path, model = ("/agent", SHORT) if key == REACT else ("/relay", key)
            await _read(http.post(path, json=make_chat(model)), steps)

        yield CountedProcess(pid, folder), {"FastAPI + httpx, no log": _list_asks(ask)}


def _hook(folder: Path) -> dict[str, str]:
    """Return the environment of a process to count, which writes to `folder`."""
    return {"PYTHONPATH": f"{HOOK}:{Path(__file__).parents[2]}", "COUNTS_FOLDER": str(folder)}


async def _read(request: Any, steps: Steps) -> None:
    async with request as answer:
        assert answer.status == 200, await answer.text()
        async for chunk in answer.content.iter_any():
            steps.take(len(STAMP.findall(chunk)))

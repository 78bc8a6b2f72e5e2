"""One load on one way, seen by a reader process of its own; and the rounds in which all ways are measured."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import aiohttp

from benchmarks.reader import Seen, Task
from benchmarks.ways import Way, Ways
from services.runtime.process.transport import VARIABLE

PACED = "bench-100000x30ms"
"""33 deltas a second, for longer than anybody looks."""

FLAT_OUT = "bench-4000x0ms"
"""As fast as they are read. No longer, because a run drops the queue of a reader who is 4,096 events behind."""

IDLE = "idle"
"""Says nothing."""

OPENED_PER_S = 80.0
"""So that opening, which is dearer than a delta, does not decide how the measured time begins."""

PROBES = 100
"""First deltas that one measurement waits for."""

IDLE_TIMEOUT_S = 60.0
"""How long what was measured before may take to notice that its reader has left."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams at once."""

    streams: int
    model: str = PACED

    @property
    def pace(self) -> str:
        return {PACED: "33/s each", FLAT_OUT: "flat out", IDLE: "silent"}[self.model]

    def __str__(self) -> str:
        return f"{self.streams:,} stream{'s' * (self.streams > 1)}, {self.pace}"


Results = dict[tuple[Load, str], list[Seen | None]]
"""By load and the way's name, one for each round; None where a stream broke."""


class Broken(Exception):
    """A stream of a measurement broke; its reader has said on standard error how."""


async def rounds(ways: Ways, loads: Sequence[Load], count: int, window_s: float, say: Callable[[str], None]) -> Results:
    """Measure every load on every way, `count` times; the ways take turns, so that a moment's noise hits all."""
    results: Results = {}
    for load in loads:
        for number in range(1, count + 1):
            for way in ways.ways:
                try:
                    seen = await measure(ways, way, load, window_s)
                except Broken as error:
                    say(f"NOTICE: {error}")
                    seen = None
                else:
                    say(f"{load}, round {number}, {way.name}: {seen.deltas / seen.elapsed_s:,.0f} deltas/s")
                results.setdefault((load, way.name), []).append(seen)
    return results


def broken(results: Results) -> list[str]:
    """What did not work, as sentences."""
    return [
        f"{way} broke streams in {seen.count(None)} of {len(seen)} rounds of {load}."
        for (load, way), seen in results.items()
        if None in seen
    ]


async def measure(ways: Ways, way: Way, load: Load, window_s: float) -> Seen:
    """Once; everything is idle again when this returns.

    Raises:
        Broken: A stream broke.
    """
    task = Task(
        url=way.url,
        model=load.model,
        streams=load.streams,
        opened_per_s=OPENED_PER_S,
        window_s=window_s,
        again=load.model == FLAT_OUT,
        probes=0 if load.model == IDLE else PROBES,
        pids={"simulator": ways.simulator_pid} | way.pids,
    )
    command = (sys.executable, "-m", "benchmarks.reader", json.dumps(asdict(task)))
    environment = {VARIABLE: way.transport} if way.transport else {}
    reader = await asyncio.create_subprocess_exec(
        *command, env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await reader.communicate()
    await _until_idle(ways.simulator_url)
    if reader.returncode:
        raise Broken(f"{way.name}, {load}: a stream broke")
    return Seen(**json.loads(answer))


async def _until_idle(simulator_url: str) -> None:
    url = simulator_url.removesuffix("/v1") + "/simulator/requests"
    async with asyncio.timeout(IDLE_TIMEOUT_S), aiohttp.ClientSession() as http:
        while await _open_streams(http, url):  # noqa: ASYNC110 - another process, which tells nobody
            await asyncio.sleep(0.5)


async def _open_streams(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(url) as response:
        return (await response.json())["openStreams"]

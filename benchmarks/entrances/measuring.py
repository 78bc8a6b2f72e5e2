"""Measures one load on one way."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import aiohttp

from benchmarks.entrances.reader import Seen, Task
from benchmarks.entrances.ways import LONG, REACT, SHORT, Way

IDLE_TIMEOUT_S = 30.0
"""How long runs may continue after their reader has left."""

SETTLE_S = 2.0

DELTAS = {SHORT: 20, LONG: 200, REACT: 60}
"""Number of deltas per run."""

BREAKING_RATIO = 0.02
"""Share of broken answers above which a note is added."""


@dataclass(frozen=True, slots=True)
class Load:
    key: str
    """Model of the provider, or REACT."""

    streams: int
    spread_s: float
    """Time over which the streams start: the length of one run, so that runs start all the time."""

    settle_s: float = SETTLE_S
    """Time after that before the window starts."""


@dataclass(slots=True)
class Measuring:
    base_url: str
    """Base URL of the provider."""

    window_s: float
    rounds: int
    report: Callable[[str], None]
    notes: list[str] = field(default_factory=list[str])

    async def measure_all(self, load: Load, ways: Sequence[Way]) -> dict[str, Seen]:
        """Measure a load on each way in turn, for all rounds; return the medians by name of the way."""
        seen: dict[str, list[Seen]] = {}
        for _ in range(self.rounds):
            for way in ways:
                if (one := await self.measure(load, way)) is not None:
                    seen.setdefault(way.name, []).append(one)
        return {name: _take_medians(rounds) for name, rounds in seen.items()}

    async def measure(self, load: Load, way: Way) -> Seen | None:
        """Measure once, and wait until the provider is idle; return None, with a note, if the reader failed."""
        key = way.react_key if load.key == REACT else load.key
        task = Task(
            url=way.react_url if load.key == REACT else way.url,
            agent_key=key,
            body=way.make_body(key),
            streams=load.streams,
            spread_s=load.spread_s,
            settle_s=load.settle_s,
            window_s=self.window_s,
            pids=way.list_pids(),
        )
        command = (sys.executable, "-m", "benchmarks.entrances.reader", json.dumps(asdict(task)))
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        answer, _ = await reader.communicate()
        what = f"{load.streams} × {load.key}, {way.name}"
        if not await self._wait_until_idle():
            self.notes.append(f"{what}: runs went on for {IDLE_TIMEOUT_S:.0f} s after their readers had left.")
        if reader.returncode:
            self.notes.append(f"{what}: the reader failed.")
            return None
        seen = Seen(**json.loads(answer))
        self.report(f"{what}: {seen.deltas / seen.elapsed_s:,.0f} deltas/s")
        runs = seen.deltas / DELTAS.get(load.key, 1)
        if seen.failures > max(runs * BREAKING_RATIO, 1):
            self.notes.append(f"{what}: {seen.failures:,} answers broke, and {runs:,.0f} did not.")
        return seen

    async def _wait_until_idle(self) -> bool:
        try:
            async with asyncio.timeout(IDLE_TIMEOUT_S), aiohttp.ClientSession() as http:
                while await _count_streams(http, self.base_url):  # noqa: ASYNC110 - another process, which tells nobody
                    await asyncio.sleep(0.2)
        except TimeoutError:
            return False
        return True


async def _count_streams(http: aiohttp.ClientSession, base_url: str) -> int:
    async with http.get(base_url) as response:
        return int(await response.text())


def _take_medians(rounds: list[Seen]) -> Seen:
    def median(value: Callable[[Seen], float]) -> float:
        return statistics.median(value(one) for one in rounds)

    return Seen(
        deltas=round(median(lambda one: one.deltas)),
        elapsed_s=median(lambda one: one.elapsed_s),
        failures=max(one.failures for one in rounds),
        first_ms_p50=median(lambda one: one.first_ms_p50),
        first_ms_p99=median(lambda one: one.first_ms_p99),
        ask_ms_p50=median(lambda one: one.ask_ms_p50),
        ask_ms_p99=median(lambda one: one.ask_ms_p99),
        delay_ms_p50=median(lambda one: one.delay_ms_p50),
        delay_ms_p99=median(lambda one: one.delay_ms_p99),
        cpu_us={name: statistics.median(one.cpu_us[name] for one in rounds) for name in rounds[0].cpu_us},
        added_mb={name: statistics.median(one.added_mb[name] for one in rounds) for name in rounds[0].added_mb},
    )

"""The two forms of `headrace up` on one machine, side by side: `python -m benchmarks.forms`

In turn, several rounds each: a process for each service (`--split`), and one for all but tools (`--one-process`). CPU
and memory are of all processes of the suite, `headrace up` itself among them; the simulated provider is not. What a
first delta is late is what the suite adds to the provider's own, which the same round measures. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console

from benchmarks.asking import time_first_delta
from benchmarks.cpu import cpu_us, pss_mb
from benchmarks.memory.tables import table
from benchmarks.processes import simulating, suite
from headrace.client import Client

FORMS = ("--split", "--one-process")
MODEL = "sim-1"
WORDS = 20
SCRIPT = [{"steps": [{"content": "word "}] * WORDS}]
WARM_UP = 30
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Round:
    ready_s: float
    idle_mb: float
    first_ms: float
    """Median time to the first delta, one run at a time."""

    provider_ms: float
    """The same of the provider itself."""

    cpu_ms: float
    """CPU of a run, one at a time."""

    cpu_ms_16: float
    """CPU of a run, 16 at a time."""


async def measure_form(form: str, runs: int) -> Round:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with simulating(Path(folder), SCRIPT) as (base_url, _):
            begun_s = time.perf_counter()
            async with suite(Path(folder), base_url, [MODEL], form=form) as (grpc, pids):
                ready_s = time.perf_counter() - begun_s
                await asyncio.sleep(SETTLE_S)
                idle_mb = sum(pss_mb(pid) for pid in pids.values())
                async with Client(grpc) as client:
                    await ask_some(client, WARM_UP, 1)
                    provider_ms = await measure_provider(base_url, runs // 2)
                    cpu_ms, first_ms = await measure_runs(client, pids, runs, 1)
                    cpu_ms_16, _ = await measure_runs(client, pids, runs, 16)
    return Round(ready_s, idle_mb, first_ms, provider_ms, cpu_ms, cpu_ms_16)


async def measure_runs(client: Client, pids: dict[str, int], runs: int, at_once: int) -> tuple[float, float]:
    before = sum(cpu_us(pid) for pid in pids.values())
    firsts_ms = await ask_some(client, runs, at_once)
    spent_us = sum(cpu_us(pid) for pid in pids.values()) - before
    return spent_us / 1000 / runs, statistics.median(firsts_ms)


async def ask_some(client: Client, runs: int, at_once: int) -> list[float]:
    """Return the times to the first delta in ms."""
    firsts_ms: list[float] = []
    left = runs

    async def ask_in_turn() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            first_ms, _ = await time_first_delta(client, MODEL)
            firsts_ms.append(first_ms)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(ask_in_turn())
    return firsts_ms


async def measure_provider(base_url: str, runs: int) -> float:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    firsts_ms: list[float] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(runs):
            begun_s = time.perf_counter()
            async with session.post(f"{base_url}/chat/completions", json=body) as response:
                while b"word" not in await response.content.readline():
                    pass
                firsts_ms.append((time.perf_counter() - begun_s) * 1000)
                await response.read()
    return statistics.median(firsts_ms)


async def main(rounds: int, runs: int) -> None:
    seen: dict[str, list[Round]] = {form: [] for form in FORMS}
    for _ in range(rounds):
        for form in FORMS:
            seen[form].append(await measure_form(form, runs))
    rows: dict[str, Callable[[Round], float]] = {
        "ready s": lambda one: one.ready_s,
        "idle, PSS of all processes, MB": lambda one: one.idle_mb,
        "first delta, 1 stream, ms": lambda one: one.first_ms,
        "of it added, ms": lambda one: one.first_ms - one.provider_ms,
        "CPU of a run, 1 at a time, ms": lambda one: one.cpu_ms,
        "CPU of a run, 16 at a time, ms": lambda one: one.cpu_ms_16,
    }
    found = table(f"headrace up, {rounds} rounds of {runs} runs of {WORDS} deltas", "", *FORMS, "ratio")
    for name, value in rows.items():
        split, one = (statistics.median(map(value, seen[form])) for form in FORMS)
        found.add_row(name, f"{split:.2f}", f"{one:.2f}", f"{one / split:.2f}")
    Console(width=100).print(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.forms", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    uvloop.run(main(given.rounds, given.runs))

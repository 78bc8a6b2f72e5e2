"""What runs cost that begin all the time: `python -m benchmarks.beginnings`

So many streams ask again as soon as their run has ended, in turn with a new chat and as its next question.
Prints the time to the first delta less `--provider-ms`, and the CPU time of the suite's processes per run.
To compare with another version, run this file with its folder in PYTHONPATH, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.asking import time_first_delta
from benchmarks.cpu import cpu_us
from benchmarks.processes import stack
from headrace.client import Client

WARM_UP_S = 3.0


class Asking:
    """Runs one after another, with the times to their first deltas in ms."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model
        self.first_ms: list[float] = []

    async def ask_until(self, until_s: float) -> None:
        known = ""
        while time.monotonic() < until_s:
            first_ms, chat_id = await time_first_delta(self._client, self._model, known)
            known = "" if known else chat_id
            self.first_ms.append(first_ms)


async def main(streams: int, seconds: float, model: str, provider_ms: float) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with stack(Path(folder), [model]) as suite, Client(suite.grpc) as client:
            pids = {name: pid for name, pid in suite.pids.items() if name != "simulator"}
            await _ask(client, model, streams, WARM_UP_S)
            before = {name: cpu_us(pid) for name, pid in pids.items()}
            first_ms = await _ask(client, model, streams, seconds)
            cpu_ms = {name: (cpu_us(pid) - before[name]) / 1000 / len(first_ms) for name, pid in pids.items()}
    added = [value - provider_ms for value in first_ms]
    cuts = statistics.quantiles(added, n=100)
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in cpu_ms.items() if spent >= 0.05)
    print(
        f"{os.getcwd()}: {streams} streams, {len(added) / seconds:.1f} runs/s, added first delta p50 {cuts[49]:.1f}"
        f" p99 {cuts[98]:.1f} ms, CPU {sum(cpu_ms.values()):.1f} ms a run ({parts})"
    )


async def _ask(client: Client, model: str, streams: int, seconds: float) -> list[float]:
    until_s = time.monotonic() + seconds
    asking = [Asking(client, model) for _ in range(streams)]
    async with asyncio.TaskGroup() as group:
        for number, each in enumerate(asking):
            group.create_task(_ask_later(each, number / streams * WARM_UP_S / 2, until_s))
    return [value for each in asking for value in each.first_ms]


async def _ask_later(asking: Asking, delay_s: float, until_s: float) -> None:
    await asyncio.sleep(delay_s)
    await asking.ask_until(until_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", default="bench-20x30ms")
    parser.add_argument("--provider-ms", type=float, default=0.0)
    given = parser.parse_args()
    uvloop.run(main(given.streams, given.seconds, given.model, given.provider_ms))

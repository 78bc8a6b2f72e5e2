"""Writers in a separate process: `python -m benchmarks.memory.writer ADDRESS SECONDS LINES CHAT:RUN…`

Each writer appends `LINES` lines to its run, waits for the acknowledgement, and appends the next. Prints the
times of all appends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

import uvloop

from benchmarks.memory.lines import PROSE, answer, append, step
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.runtime.rpc.channels import open_channel

if TYPE_CHECKING:
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

LINE_CHARS = 400


async def main(address: str, seconds: float, lines: int, runs: list[str]) -> None:
    async with open_channel(address) as channel:
        stub: MemoryServiceAsyncStub = MemoryServiceStub(channel)
        await channel.channel_ready()
        until_s = time.perf_counter() + seconds
        times = await asyncio.gather(*(_write(stub, *run.split(":"), lines=lines, until_s=until_s) for run in runs))
    print(json.dumps([elapsed_s for writer in times for elapsed_s in writer]))


async def _write(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str, *, lines: int, until_s: float) -> list[float]:
    times: list[float] = []
    appended = [step(answer((PROSE * 5)[:LINE_CHARS], "m_00000001"))] * lines
    while (started := time.perf_counter()) < until_s:
        await append(stub, chat_id, run_id, *appended)
        times.append(time.perf_counter() - started)
    return times


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))

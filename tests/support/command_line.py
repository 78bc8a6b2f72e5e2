"""headrace as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys

from headrace.v1 import agent_pb2
from tests.support.facade.scripted import RUN, delta

CANCELLED = delta(9, run_cancel=agent_pb2.RunCancel(run_id=RUN))

GIVEN_UP_S = 600.0
"""Says nothing about how long anything takes: on a busy machine a suite is slow, and says so itself after a minute."""


async def start(*arguments: str, url: str = "", **settings: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, **settings} | ({"HEADRACE_URL": url} if url else {})
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )


async def run(*arguments: str, url: str = "", given: bytes = b"", **settings: str) -> tuple[int | None, bytes, bytes]:
    process = await start(*arguments, url=url, **settings)
    async with asyncio.timeout(GIVEN_UP_S):
        out, complaints = await process.communicate(given)
    return process.returncode, out, complaints

"""Judges as processes: a conversation's requests go in as a line of JSON, and their verdicts come out as one."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judges.environments import find_python_environment

LINE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Judge:
    """A running judge; one conversation at a time."""

    process: asyncio.subprocess.Process

    async def judge(self, requests: list[dict[str, Any]]) -> list[dict[str, str]]:
        """Return the verdict of each request."""
        assert requests, "nothing was sent"
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(requests).encode() + b"\n")
        await self.process.stdin.drain()
        verdicts = json.loads(await self.process.stdout.readline())
        assert len(verdicts) == len(requests)
        return verdicts


@asynccontextmanager
async def running_judge(environment: str, program: str, **env: str) -> AsyncGenerator[Judge]:
    """Run a program of programs/ inside the block, in its environment."""
    command = (str(make_environment(environment)), str(PROGRAMS / program))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | env,
        limit=LINE_BYTES_MAX,
    )
    try:
        yield Judge(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


LISTS = Path(__file__).with_name("environments")
PROGRAMS = Path(__file__).with_name("programs")


def make_environment(name: str) -> Path:
    """Return the Python of the environment with the packages of environments/NAME.txt."""
    return find_python_environment(name, LISTS / f"{name}.txt")

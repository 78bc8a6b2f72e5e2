"""One load: a server and a client in separate processes, and the result."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from trials.grpc_load.clients import Client, StreamEnd
from trials.grpc_load.programs import ROOT

SLACK_S = 120.0
"""Time beyond that of the streams after which a load is given up; processes start slowly on a busy machine."""


@dataclass(frozen=True, slots=True)
class Load:
    streams: int
    per_s: int
    """Deltas per stream and second."""

    def __str__(self) -> str:
        return f"{self.streams} x {self.per_s}/s"


@dataclass(frozen=True, slots=True)
class Result:
    ends: list[StreamEnd]
    deltas: int
    """Number of deltas of each stream."""

    missing: int
    """Number of streams that the client does not report."""

    complaint: str
    """Any other problem, such as the output of a failed client."""

    refusals: list[str]
    """Logged reasons of refused connections."""

    @property
    def breaks(self) -> list[StreamEnd]:
        """Streams that did not reach their end, earliest break first."""
        broken = [end for end in self.ends if end.code != "OK" or end.messages not in (None, self.deltas)]
        return sorted(broken, key=lambda end: end.seconds)

    @property
    def is_whole(self) -> bool:
        return not (self.breaks or self.missing or self.complaint or self.refusals)

    @property
    def seconds(self) -> float:
        """Time to the last stream's end."""
        return max((end.seconds for end in self.ends), default=0.0)


@dataclass(slots=True)
class _Server:
    address: str
    refusals: list[str] = field(default_factory=list[str])


async def run_load(client: Client, load: Load, seconds: float, transport: str) -> Result:
    """Let the client read the load's streams, which take `seconds` seconds, to their ends."""
    deltas = int(seconds * load.per_s)
    # Building its program may take minutes.
    await asyncio.to_thread(client.build_command, "", load.streams)
    async with _serving(load.per_s, deltas, transport) as server:
        process = await asyncio.create_subprocess_exec(
            *client.build_command(server.address, load.streams),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(seconds + SLACK_S):
                output, complaint = await process.communicate()
        except TimeoutError:
            return Result([], deltas, load.streams, f"no end after {seconds + SLACK_S:.0f} s", server.refusals)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            return Result([], deltas, load.streams, complaint.decode().strip(), server.refusals)
        ends = client.read_output(output.decode())
        return Result(ends, deltas, load.streams - len(ends), "", server.refusals)


@asynccontextmanager
async def _serving(per_s: int, deltas: int, transport: str) -> AsyncGenerator[_Server]:
    settings = {"HEADRACE_TRANSPORT": transport, "HEADRACE_LOAD_PER_S": str(per_s), "HEADRACE_LOAD_DELTAS": str(deltas)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trials.grpc_load.server"),
        cwd=ROOT,
        env=inherited | settings,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(SLACK_S):
            line = await _read_event(process.stderr, "serving")
        server = _Server(line["addresses"][0])
        reading = asyncio.create_task(_read_refusals(process.stderr, server))
        yield server
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        if reading is not None:
            await reading
        await process.wait()


async def _read_event(log: asyncio.StreamReader, event: str) -> dict[str, Any]:
    while line := await log.readline():
        if (fields := orjson.loads(line))["event"] == event:
            return fields
    raise RuntimeError(f"the server ended without {event!r}")


async def _read_refusals(log: asyncio.StreamReader, server: _Server) -> None:
    while line := await log.readline():
        if (fields := orjson.loads(line))["event"] == "connection refused":
            server.refusals.append(fields["error"])

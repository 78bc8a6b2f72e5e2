"""One attack against a separate service, during an honest stream: its cost, and its effect on the honest reader."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from benchmarks.cpu import rss_mb
from headrace.client import Client
from services.runtime.process.transport import CA, CERT, KEY
from tests.support.authority import Files
from tests.support.issuing import INTERNAL, keys_file
from trials.hostile.victim import TICK_S

SECRET = "an honest caller's key"
RUN = "0d7e1a5e-7a3c-4b8e-9d55-6d6f1f1f2a01"
BYTES_PER_S = 1_000_000

EVENTS_BEHIND = 20
"""Number of events of the honest stream to read after an attack."""


@dataclass(slots=True)
class Victim:
    process: asyncio.subprocess.Process
    port: int
    stalls_s: list[float] = field(default_factory=list[float])
    """Longest CPU times between two turns of a timer that is always due, for services that report them."""

    def cpu_s(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        return rss_mb(self.process.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    bytes_sent: int
    connections: int
    elapsed_s: float
    cpu_s: float
    """CPU time of the attacked process, including the honest stream."""

    rss_mb: float
    """Growth of its memory."""

    gap_s_p99: float
    """p99 of the time between two events of the honest stream, minus that without an attack."""

    is_whole: bool
    """Whether the honest stream lost no event and continued after the attack."""


@asynccontextmanager
async def victim(folder: Path, transport: str, certificates: Files | None = None) -> AsyncGenerator[Victim]:
    env = {
        "HEADRACE_AUTH": "api_key",
        "HEADRACE_AUTH_API_KEYS_FILE": str(keys_file(folder, **{SECRET: "a/honest"})),
        "HEADRACE_INTERNAL_TOKEN": INTERNAL,
        "HEADRACE_TRANSPORT": transport,
    }
    if certificates is not None:
        env |= {CERT: certificates.cert, KEY: certificates.key, CA: certificates.ca}
    async with start_victim([sys.executable, "-m", "trials.hostile.victim"], env) as one:
        yield one


@asynccontextmanager
async def start_victim(command: Sequence[str], settings: dict[str, str]) -> AsyncGenerator[Victim]:
    """Run a program with only these settings; it prints its stalls."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | settings
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        while (entry := orjson.loads(await process.stderr.readline()))["event"] != "serving":
            pass
        one = Victim(process, int(entry["addresses"][0].rpartition(":")[2]))
        async with asyncio.TaskGroup() as group:
            reading = [
                group.create_task(_drop(process.stderr)),
                group.create_task(_follow(process.stdout, one.stalls_s)),
            ]
            yield one
            for task in reading:
                task.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def is_alive(connection: socket.socket) -> bool:
    """Return whether the other end has not closed the connection; received data is discarded."""
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


async def _drop(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _follow(reader: asyncio.StreamReader, stalls_s: list[float]) -> None:
    while line := await reader.readline():
        stalls_s.append(float(line))


async def try_attack(one: Victim, name: str, seconds: float) -> Cost:
    """Attack for `seconds`, during an honest stream."""
    async with Client(f"127.0.0.1:{one.port}", token=SECRET) as client, client.attach(RUN) as deltas:
        seqs = (delta.seq async for delta in deltas)
        return await measure_attack(one, seqs, "trials.hostile.attacker", name, seconds)


async def measure_attack(one: Victim, seqs: AsyncIterator[int], attacker: str, name: str, seconds: float) -> Cost:
    """Let the module `attacker` attack for `seconds`, while reading an honest stream's sequence numbers."""
    before = await anext(seqs)
    cpu_s, rss_mb = one.cpu_s(), one.rss_mb()
    one.stalls_s.clear()
    gaps_s: list[float] = []
    is_whole, loop = True, asyncio.get_running_loop()
    began_s = at_s = loop.time()
    attacking = asyncio.create_task(_attack(attacker, name, one.port, seconds))
    more = EVENTS_BEHIND
    while more:
        seq, now_s = await anext(seqs), loop.time()
        gaps_s.append(now_s - at_s)
        is_whole, before, at_s = is_whole and seq == before + 1, seq, now_s
        more -= attacking.done()
    sent, connections = await attacking
    return Cost(
        bytes_sent=sent,
        connections=connections,
        elapsed_s=loop.time() - began_s,
        cpu_s=one.cpu_s() - cpu_s,
        rss_mb=one.rss_mb() - rss_mb,
        gap_s_p99=max(sorted(gaps_s)[int(len(gaps_s) * 0.99) - 1] - TICK_S, 0.0),
        is_whole=is_whole,
    )


async def _attack(attacker: str, name: str, port: int, seconds: float) -> tuple[int, int]:
    """Attack for a while; return the number of accepted bytes and of connections."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", attacker, name, str(port), str(BYTES_PER_S), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    sent, connections = printed.split()
    return int(sent), int(connections)

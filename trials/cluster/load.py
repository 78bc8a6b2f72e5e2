"""Asks over HTTP on several streams at a time until its input ends, and counts how the runs end.

`python -m trials.cluster.load URL STREAMS KEY_FILE AGENT` runs in the cluster's network and prints one JSON
object. A broken stream is resumed where it broke, as a client would do.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ENDS = ("run.complete", "run.error", "run.cancel")

TRIES_MAX = 240

PAUSE_S = 0.5

SILENCE_S = 180.0


@dataclass(slots=True)
class Counts:
    """Outcomes of all questions."""

    ends: Counter[str] = field(default_factory=Counter[str])
    """By type of the last event; `lost` is an acknowledged run with an end that could not be read."""

    refused: Counter[str] = field(default_factory=Counter[str])
    """Queries answered with an error, or with a connection that broke before the run had an id."""

    attaches: Counter[int] = field(default_factory=Counter[int])
    """Number of streams by how often they were resumed."""

    problems: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Stream:
    run_id: str = ""
    seq: int = 0
    end: str = ""
    problem: str = ""


async def ask_until(stop: asyncio.Event, url: str, streams: int, key: str, agent: str) -> Counts:
    counts = Counts()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_S)
    # A new connection per request, as from many clients.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout, connector=connector) as http:

        async def work() -> None:
            while not stop.is_set():
                await _ask(http, agent, counts)

        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(work())
    return counts


async def _ask(http: aiohttp.ClientSession, agent: str, counts: Counts) -> None:
    stream = Stream()
    body = {"agentKey": agent, "message": "What time is it in Paris? Tell me all about it."}
    async with _noting(stream), http.post("/api/query", json=body) as response:
        if response.status != 200:
            problem = f"{response.status} {(await response.json()).get('reason', '')}"
            counts.refused[problem] += 1
            await asyncio.sleep(PAUSE_S)
            return
        await _read(response, stream)
    if not stream.end and not stream.run_id:
        counts.refused[stream.problem or "cut before run.start"] += 1
        await asyncio.sleep(PAUSE_S)
        return
    attaches = 0
    for _ in range(TRIES_MAX):
        if stream.end:
            break
        await asyncio.sleep(PAUSE_S)
        parameters = {"runId": stream.run_id, "lastSeq": str(stream.seq)}
        async with _noting(stream), http.get("/api/attach", params=parameters) as response:
            if response.status == 200:
                # Only accepted connections count; a retry does not mean a broken stream.
                attaches += 1
                await _read(response, stream)
    counts.attaches[attaches] += 1
    counts.ends[stream.end or "lost"] += 1
    if stream.end != "run.complete":
        counts.problems.append(f"{stream.run_id}: {stream.end or 'lost'} {stream.problem}")


@asynccontextmanager
async def _noting(stream: Stream) -> AsyncGenerator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        stream.problem = type(error).__name__


async def _read(response: aiohttp.ClientResponse, stream: Stream) -> None:
    async for line in response.content:
        text = line.decode().strip()
        if not text.startswith("data: {"):
            continue
        event: dict[str, Any] = json.loads(text.removeprefix("data: "))
        # A resumed stream repeats the start of an open block.
        stream.seq = max(stream.seq, event.get("seq", 0))
        stream.run_id = event.get("runId") or stream.run_id
        if event["type"] in ENDS:
            stream.end, stream.problem = event["type"], text[:400]


async def main(url: str, streams: str, key: str, agent: str) -> None:
    stop = asyncio.Event()
    asking = asyncio.create_task(ask_until(stop, url, int(streams), key, agent))
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([asking, reading], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    counts = await asking
    json.dump({name: getattr(counts, name) for name in ("ends", "refused", "attaches", "problems")}, sys.stdout)


if __name__ == "__main__":
    url, streams, key_file, agent = sys.argv[1:]
    asyncio.run(main(url, streams, Path(key_file).read_text().strip(), agent))

"""Measure another tenant's first delta during work that is not a run, on PostgreSQL: [CHATS, 8,000 or more].

The quiet tenant asks one question after another, first alone and then while the loud one searches, exports, erases or
opens 2,000 runs, and at last during retention, with budgets over a million rows of its spending. It must not be
refused, no run may lose its lease, and its p99 may be 1.5 times that of the idle suite plus 50 ms. Nothing else may run
on the machine.
"""

import asyncio
import itertools
import logging
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from benchmarks import postgresql
from benchmarks.processes import RunningSuite, configure, simulating, starting_suite
from headrace.client import Client
from services.runtime.auth.identity import ALL_SCOPES
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid
from tests.support.issuing import keys_file
from tests.support.memory.filling import CHATS_EACH, fill
from tests.support.memory.questions import write_sources
from tests.support.memory.serving import memory_in
from tests.support.postgresql import connected

CHATS, TENANTS = 20_000, 20
MODEL = "bench-16x5ms"
QUESTIONS, PAUSE_S = 300, 0.02
LOAD_S = 20.0
FACTOR, EXTRA_S = 1.5, 0.05
RUNS = 2_000
ERASED_USERS = 3
"""Tenants, each with CHATS_EACH chats."""

LOUD, QUIET = "t-0", "calm"
KEYS = {tenant: f"a-key-of-tenant-{tenant}-in-this-trial" for tenant in (LOUD, QUIET)}

SPEND_ROWS = 1_000_000

BUDGETS = f"""
budgets:
  - {{id: all, period: month, tenant: {QUIET}, usd: 1000000}}
  - {{id: each, period: month, user: "*", usd: 1000000}}
"""

_MUCH_SPENDING = """
UPDATE chats SET updated_at = updated_at - 2 * 86400000 WHERE id % 2 = 0;
INSERT INTO spend SELECT 10000000 + n, extract(epoch FROM now())::bigint / 86400, '{tenant}', 'u-' || n % 1000,
    'writer', 'm', '', 1, 1, 0, 1, 1 FROM generate_series(1, {rows}) AS n;
ANALYZE
"""
"""Also makes half of all chats old."""

_OLD_CHATS = "SELECT count(*) FROM chats WHERE updated_at < (extract(epoch FROM now()) - 86400) * 1000"

_COUNT = f"SELECT ({_OLD_CHATS}), count(*) FROM runs WHERE started_at >= $1 AND lease_generation > 1"
"""Old chats, and runs that others took over since a time."""

Work = Callable[[aiohttp.ClientSession], Awaitable[str]]
"""One piece of work of the loud tenant; returns how it ended."""


def main(arguments: list[str]) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    chats = int(arguments[0]) if arguments else CHATS
    with postgresql.running("-c", "synchronous_commit=on", "-c", "shared_buffers=512MB") as server:
        return asyncio.run(_measure_all(server.new_database(), chats))


async def _measure_all(url: str, chats: int) -> int:
    async with memory_in(url) as memory:
        await write_sources(memory)
    async with connected(url) as connection:
        await fill(connection, chats, TENANTS)
    failures, began_at = 0, now_ms()
    async with _serving(url) as suite, Client(suite.grpc, token=KEYS[QUIET]) as quiet:
        await _ask(quiet, 30)
        idle_s, _ = await _ask(quiet, QUESTIONS)
        most_s = FACTOR * idle_s + EXTRA_S
        print(f"{chats:,} chats; alone: p99 {idle_s * 1000:.0f} ms, so at most {most_s * 1000:.0f} ms", flush=True)
        for name in LOADS:
            failures += await _measure(name, suite, quiet, most_s)
    async with connected(url) as connection:
        await connection.execute(_MUCH_SPENDING.format(rows=SPEND_ROWS, tenant=QUIET))
        old = await connection.fetchval(_OLD_CHATS) or 0
    serving = _serving(url, BUDGETS, HEADRACE_MEMORY_CHAT_RETENTION_DAYS="1")
    async with serving as suite, Client(suite.grpc, token=KEYS[QUIET]) as quiet:
        failures += await _measure("retention", suite, quiet, most_s, (_rest, 1))
    async with connected(url) as connection:
        [(left, lost)] = await connection.fetch(_COUNT, began_at)
    print(f"retention deleted {old - left:,} chats and left {left:,} old ones; {lost} leases lost", flush=True)
    return min(failures + lost + (left in (0, old)), 1)


async def _measure(
    name: str, suite: RunningSuite, quiet: Client, most_s: float, load: tuple[Work, int] | None = None
) -> bool:
    """Measure during one load; return whether it is too much."""
    # In a process of its own, so that the quiet tenant's times contain none of its work.
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        loud = asyncio.get_running_loop().run_in_executor(processes, _run_load, suite.http, *(load or LOADS[name]))
        p99_s, refused = await _ask(quiet, None, until=loud)
    is_bad = p99_s > most_s or bool(refused)
    ended = ", ".join(f"{count} {how}" for how, count in sorted((await loud).items()))
    print(f"{name}: p99 {p99_s * 1000:.0f} ms, {len(refused)} refused{' <-- ' * is_bad}; {ended}", flush=True)
    return is_bad


@asynccontextmanager
async def _serving(url: str, budgets: str = "", **settings: str) -> AsyncGenerator[RunningSuite]:
    with tempfile.TemporaryDirectory(prefix="isolation-") as name:
        folder = Path(name)
        users = {key: f"{tenant}/u-0 staff {','.join(sorted(ALL_SCOPES))}" for tenant, key in KEYS.items()}
        environment = {
            "HEADRACE_AUTH": "api_key",
            "HEADRACE_AUTH_API_KEYS_FILE": str(keys_file(folder, **users)),
            "HEADRACE_DATABASE_URL": url,
        }
        async with simulating(folder) as (base_url, _):
            configure(folder / "config", base_url, [MODEL])
            if budgets:
                (folder / "config" / "budgets.yaml").write_text(budgets)
            environment |= settings
            starting = starting_suite(folder, base_url, [MODEL], form="--one-process", environment=environment)
            async with starting as suite:
                yield suite


async def _ask(
    client: Client, questions: int | None, until: asyncio.Future[Any] | None = None
) -> tuple[float, list[str]]:
    """Ask so many questions, or until a task is done; return the p99 of the first deltas in seconds, and refusals."""
    times_s, refused = list[float](), list[str]()
    while len(times_s) < questions if questions is not None else not (until and until.done()):
        asked_s = time.perf_counter()
        try:
            async with client.ask("go", agent_key=MODEL, on_disconnect="cancel") as deltas:
                async for delta in deltas:
                    if delta.HasField("run_error"):
                        refused.append(delta.run_error.error.code)
                        break
                    if delta.HasField("content_delta"):
                        times_s.append(time.perf_counter() - asked_s)
                        break
        except Exception as error:  # the outcome of a trial, not of a caller
            refused.append(type(error).__name__)
        await asyncio.sleep(PAUSE_S)
    return (statistics.quantiles(times_s, n=100)[-1] if len(times_s) > 1 else float("inf")), refused


def _run_load(url: str, work: Work, at_once: int) -> Counter[str]:
    return asyncio.run(_keep_working(url, work, at_once))


async def _keep_working(url: str, work: Work, at_once: int) -> Counter[str]:
    """Work for LOAD_S, at least once each; each waits after a refusal for as long as the answer says."""
    ended, until_s = Counter[str](), time.perf_counter() + LOAD_S
    timeout = aiohttp.ClientTimeout(total=120)
    headers = {"x-api-key": KEYS[LOUD]}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout, connector=connector) as http:

        async def keep_working() -> None:
            while True:
                ended[await work(http)] += 1
                if time.perf_counter() >= until_s:
                    return

        await asyncio.gather(*(keep_working() for _ in range(at_once)))
    return ended


async def _get(http: aiohttp.ClientSession, path: str, **params: str) -> str:
    async with http.get(path, params=params) as response:
        return await _read(response)


async def _read(response: aiohttp.ClientResponse) -> str:
    await response.read()
    if response.status in (429, 503):
        await asyncio.sleep(float(response.headers.get("Retry-After", "1")))
    return str(response.status)


async def _search(http: aiohttp.ClientSession) -> str:
    return await _get(http, "/api/search", query="the")


async def _export(http: aiohttp.ClientSession) -> str:
    return await _get(http, "/api/gates/export")


_erasures = itertools.count()


async def _erase(http: aiohttp.ClientSession) -> str:
    """Erase users of the tenant, once, and wait until nothing of them is left."""
    if next(_erasures):
        return await _rest(http)
    for n in range(1, ERASED_USERS + 1):
        async with http.post("/api/data/erase", json={"user": f"u-{n * TENANTS}"}) as response:
            assert response.status == 200, await response.text()
    while True:
        async with http.get("/api/data/erasures") as response:
            erasures = (await response.json())["data"]
        counts = [{item["name"]: item["count"] for item in erasure.get("erased", ())} for erasure in erasures]
        if all(count.get("chats") == CHATS_EACH for count in counts):
            return "erased"
        await asyncio.sleep(1)


async def _rest(http: aiohttp.ClientSession) -> str:
    await asyncio.sleep(1)
    return "rested"


async def _open_runs(http: aiohttp.ClientSession) -> str:
    body = {"message": "go", "agentKey": MODEL, "requestId": new_uuid()}
    try:
        async with http.post("/api/query", json=body) as response:
            return await _read(response)
    except aiohttp.ClientError as error:  # more connections than one address may have
        await asyncio.sleep(1)
        return type(error).__name__


LOADS: dict[str, tuple[Work, int]] = {
    "40 searches": (_search, 40),
    "4 exports": (_export, 4),
    f"an erasure of {ERASED_USERS * CHATS_EACH} chats": (_erase, 1),
    f"{RUNS} runs at once": (_open_runs, RUNS),
}

"""A request costs as much as its reply: no statement of an RPC touches more rows and buffers than its bound, however
much is stored. PostgreSQL itself reports the cost of each, by auto_explain.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.postgresql import Server
from services.memory.storage.where import SCANNED_MAX
from services.runtime.auth.identity import acting_as
from tests.support.memory.filling import CHATS_EACH, fill
from tests.support.memory.questions import OWNER, list_calls, write_sources, write_waiting_sources
from tests.support.memory.serving import memory_in
from tests.support.postgresql import connected, make_partitioned

ROWS, BUFFERS = 420, 1500
"""The bound of a statement that the table does not name: two rows for each row of a page, and some buffers for each."""

SUMS = 31 * 8 * 4
"""Sums of a month: a row for each day, slot, and model (if by agent)."""

LIVE = 3_000
"""Live runs, in half of the chats."""

READ_MAX = 8 * SCANNED_MAX
"""Rows that a filtered page's statement reads. PostgreSQL may read and sort more rows than the limit if that touches
fewer pages than reading in index order; buffers are bounded separately.
"""

BOUNDS: dict[str, tuple[int, int]] = {
    "Search": (2 * 4 * CHATS_EACH, BUFFERS),  # the user's texts
    "GetUsage": (SUMS, BUFFERS),
    **dict.fromkeys(("MeasureBudgets", "a run"), (SUMS + LIVE, BUFFERS)),
    **dict.fromkeys(("ListChats", "ListGates", "ListGrants", "ListDeliveries"), (READ_MAX, SCANNED_MAX + BUFFERS)),
    "ListRuns": (READ_MAX, 4 * SCANNED_MAX + BUFFERS),  # each with its gate, some three pages down in an index
}
"""Rows and buffers of the costliest statement, by the RPC that runs it."""


CASCADE = 'DELETE FROM "public"."texts"'
"""The start of PostgreSQL's own statement that deletes the texts of a deleted chat: it names the chat, not the
tenant."""


@dataclass(frozen=True, slots=True)
class Cost:
    rows: int
    buffers: int
    query: str
    plan: str
    partitions: Counter[str]
    """Partitions that were read, by table."""


def count_rows(plan: dict[str, Any]) -> int:
    """Return the number of rows that a plan's scans have read, including those that were filtered out."""
    children = sum(map(count_rows, plan.get("Plans", ())))
    if not plan["Node Type"].endswith("Scan") or plan["Node Type"] in ("Function Scan", "CTE Scan", "Subquery Scan"):
        return children
    kinds = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return children + round(sum(plan.get(kind, 0) for kind in kinds) * plan["Actual Loops"])


def list_partitions(plan: dict[str, Any]) -> set[str]:
    """Return the partitions that a plan has read, without those that were pruned or never executed."""
    found = set[str]().union(*map(list_partitions, plan.get("Plans", ())))
    name = plan.get("Relation Name", "")
    if plan["Node Type"].endswith("Scan") and plan["Actual Loops"] and re.fullmatch(r"[a-z_]+_p[0-9]+", name):
        found.add(name)
    return found


def read_costs(log: str) -> Iterator[Cost]:
    for found in re.finditer(r"duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)", log):
        explained = json.loads(found[1].replace("\n\t", "\n"))
        plan = explained["Plan"]
        buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        partitions = Counter(name.rpartition("_p")[0] for name in list_partitions(plan))
        yield Cost(count_rows(plan), buffers, explained["Query Text"], json.dumps(plan, indent=1), partitions)


async def explain_all(url: str, *, uses_small_tables: bool) -> None:
    """Have the server log the plan and cost of each statement of new connections."""
    settings = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_nested_statements": "on",
        "auto_explain.log_format": "json",
    }
    if uses_small_tables:  # an index is used if there is one, even where reading all rows is cheap
        settings |= {"enable_seqscan": "off", "enable_bitmapscan": "off"}
    async with connected(url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute("LOAD 'auto_explain'")
        for setting, value in settings.items():
            await connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")


async def check_costs(
    server: Server, chats: int, tenants: int, *, uses_small_tables: bool = False, is_partitioned: bool = False
) -> None:
    url, log = server.new_database(), server.folder / "log"
    if is_partitioned:
        await make_partitioned(url)
    async with memory_in(url) as memory:
        await write_sources(memory)
        ids = await write_waiting_sources(memory)
    async with connected(url) as connection:
        await fill(connection, chats, tenants)
    await explain_all(url, uses_small_tables=uses_small_tables)
    expensive: list[str] = []
    read = Counter[str]()
    async with memory_in(url) as memory:
        with acting_as(OWNER):
            for rpc, ask in list_calls(memory, ids):
                start = log.stat().st_size
                await ask()
                costs = list_costs(rpc, read_log(log, start))
                expensive += find_expensive(rpc, costs)
                for cost in costs:
                    read |= cost.partitions
    assert not expensive, "\n\n".join(expensive)
    assert bool(read) is is_partitioned


async def test_statements_stay_within_their_bounds(postgres: Server) -> None:
    await check_costs(postgres, 6_000, 2, uses_small_tables=True)


async def test_statements_read_one_partition_of_a_table(postgres: Server) -> None:
    await check_costs(postgres, 6_000, 2, uses_small_tables=True, is_partitioned=True)


@pytest.mark.nightly
@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_statements_stay_within_their_bounds_in_a_full_database(postgres: Server, is_partitioned: bool) -> None:
    await check_costs(postgres, 200_000, 20, is_partitioned=is_partitioned)


def read_log(log: Path, start: int) -> str:
    with log.open() as file:
        file.seek(start)
        return file.read()


def list_costs(rpc: str, logged: str) -> list[Cost]:
    costs = [cost for cost in read_costs(logged) if "typeinfo" not in cost.query]  # the driver's, once a connection
    assert costs, f"{rpc} has run no statement"
    return costs


def find_expensive(rpc: str, costs: list[Cost]) -> Iterator[str]:
    rows, buffers = BOUNDS.get(rpc, (ROWS, BUFFERS))
    for cost in costs:
        is_spread = any(count > 1 for count in cost.partitions.values()) and not cost.query.startswith(CASCADE)
        if cost.rows > rows or cost.buffers > buffers or is_spread:
            read = dict(cost.partitions)
            yield f"{rpc}: {cost.rows} rows, {cost.buffers} buffers, partitions {read}: {cost.query}\n{cost.plan}"

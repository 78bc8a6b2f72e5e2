"""What is asked costs what is answered: no statement of an RPC touches more rows and buffers than its bound, however
much is stored. PostgreSQL itself says so of each, by auto_explain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.postgresql import Server
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.budgets import begin, budget, claim
from tests.support.memory.filling import CHATS_EACH, fill
from tests.support.memory.gates import opening, submitted
from tests.support.memory.messages import content
from tests.support.memory.serving import memory_in
from tests.support.memory.spend import charge, charged
from tests.support.memory.writing import Memory, new_id, run_line, step_line
from tests.support.postgresql import connected

OWNER = Identity("t-1", "u-1", scopes=ALL_SCOPES)
"""A user with the first chats of a tenant."""

ROWS, BUFFERS = 420, 1500
"""The bound of a statement that the table does not name: two rows for each of a page, and some buffers for each."""

BOUNDS: dict[str, tuple[int, int]] = {
    "Search": (2 * 4 * CHATS_EACH, 4000),  # the user's texts
}
"""Rows and buffers of the costliest statement, by the RPC that runs it."""

LIMITS = memory_pb2.ModelLimits(provider_key="p", model="m", context_window_tokens=40_000, output_tokens=100)

BUDGETS = [budget(**of, nano_usd_max=10**12) for of in ({}, {"user": OWNER.user}, {"agent_key": "writer"})]


@dataclass(frozen=True, slots=True)
class Cost:
    rows: int
    buffers: int
    query: str
    plan: str


def count_rows(plan: dict[str, Any]) -> int:
    """Return the rows that a plan's scans have looked at, including those that they threw away."""
    children = sum(map(count_rows, plan.get("Plans", ())))
    if not plan["Node Type"].endswith("Scan") or plan["Node Type"] in ("Function Scan", "CTE Scan", "Subquery Scan"):
        return children
    kinds = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return children + round(sum(plan.get(kind, 0) for kind in kinds) * plan["Actual Loops"])


def read_costs(log: str) -> Iterator[Cost]:
    for found in re.finditer(r"duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)", log):
        explained = json.loads(found[1].replace("\n\t", "\n"))
        plan = explained["Plan"]
        buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        yield Cost(count_rows(plan), buffers, explained["Query Text"], json.dumps(plan, indent=1))


async def explain_all(url: str, *, uses_small_tables: bool) -> None:
    """Have the server log the plan of each statement of new connections, with what it has cost."""
    settings = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_nested_statements": "on",
        "auto_explain.log_format": "json",
    }
    if uses_small_tables:  # where reading all rows is cheap, an index is taken all the same, if there is one
        settings |= {"enable_seqscan": "off", "enable_bitmapscan": "off"}
    async with connected(url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute("LOAD 'auto_explain'")
        for setting, value in settings.items():
            await connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")


async def write_sources(memory: Memory) -> None:
    """The chats that are copied: two with runs that have ended, one of them with a gate, and one that is long."""
    with acting_as(OWNER):
        await memory.call("CreateWebhook", webhook_id=new_id(), url="https://hooks.example/")
        await memory.call("CreateSchedule", agent_key="writer", message="news?", cron="0 9 * * *")
        for lines in (2, 2, 2, 10):
            chat_id, run_id = await memory.begin("How does a water mill work?")
            steps = [charged(step_line(content("The headrace feeds the wheel.")), charge()) for _ in range(lines)]
            gates = [opening("t_1"), submitted("t_1")] if lines == 10 else []
            await memory.append(chat_id, run_id, *steps, *gates, run_line())
            await memory.begin_and_end("And then?", chat_id)


def list_calls(memory: Memory) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yield each RPC that lists, searches, sums, exports or is on a run's path, with its costly arguments."""
    named: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Search", {"query": "the"}),
        ("Search", {"query": "zebra"}),
        ("Search", {"query": "a"}),
        ("ListChats", {"page_size": 200}),
        ("ListChats", {"scope": "shared"}),
        ("ListRuns", {}),
        ("ListRuns", {"user": OWNER.user}),
        ("ListRuns", {"user": "nobody"}),
        ("ListRuns", {"agent_key": "nobody"}),
        ("ListRuns", {"state": "failed"}),
        ("ListRuns", {"state": "live"}),
        ("ListRuns", {"state": "waiting"}),
        ("ListGates", {}),
        ("ListGrants", {}),
        ("ListUnfinishedRuns", {}),
        ("ListSchedules", {}),
        ("ListSchedules", {"scope": "tenant", "page_size": 50}),
        ("ListFacts", {}),
        ("RecallFacts", {"query": "mill"}),
        ("GetUsage", {}),
        ("GetUsage", {"scope": "tenant"}),
        ("GetUsage", {"scope": "tenant", "group_by": ["agent", "model"]}),
        ("GetUsage", {"scope": "tenant", "user": OWNER.user, "group_by": ["day", "model"]}),
        ("ListErasures", {}),
        ("ListHolds", {}),
    )
    for rpc, fields in named:
        yield rpc, lambda rpc=rpc, fields=fields: memory.call(rpc, **fields)
    yield "ExportGates", lambda: memory.export_gates(since=now_ms())
    yield "a run", lambda: go_through_a_run(memory)
    yield "MeasureBudgets", lambda: memory.call("MeasureBudgets", budgets=BUDGETS)


async def go_through_a_run(memory: Memory) -> None:
    """All that a run and its chat ask for."""
    chat_id, run_id = await begin(memory, OWNER)
    await memory.context(chat_id, run_id, system="Be brief.", limits=LIMITS)
    await claim(memory, run_id, 1, 2, *BUDGETS)
    await memory.append(chat_id, run_id, charged(step_line(content("hi")), charge()))
    await memory.append(chat_id, run_id, opening("t_1"))
    await memory.append(chat_id, run_id, submitted("t_1"), run_line())
    await memory.chat(chat_id=chat_id)
    await memory.delete(chat_id)


async def check_costs(server: Server, chats: int, tenants: int, *, uses_small_tables: bool = False) -> None:
    url, log = server.new_database(), server.folder / "log"
    async with memory_in(url) as memory:
        await write_sources(memory)
    async with connected(url) as connection:
        await fill(connection, chats, tenants)
    await explain_all(url, uses_small_tables=uses_small_tables)
    dear: list[str] = []
    async with memory_in(url) as memory:
        with acting_as(OWNER):
            for rpc, ask in list_calls(memory):
                start = log.stat().st_size
                await ask()
                dear += find_dear(rpc, read_log(log, start))
    assert not dear, "\n\n".join(dear)


async def test_statements_stay_within_their_bounds(postgres: Server) -> None:
    await check_costs(postgres, 2_000, 2, uses_small_tables=True)


@pytest.mark.nightly
async def test_statements_stay_within_their_bounds_in_a_full_database(postgres: Server) -> None:
    await check_costs(postgres, 200_000, 20)


def read_log(log: Path, start: int) -> str:
    with log.open() as file:
        file.seek(start)
        return file.read()


def find_dear(rpc: str, logged: str) -> Iterator[str]:
    rows, buffers = BOUNDS.get(rpc, (ROWS, BUFFERS))
    costs = [cost for cost in read_costs(logged) if "typeinfo" not in cost.query]  # the driver's, once a connection
    assert costs, f"{rpc} has run no statement"
    for cost in costs:
        if cost.rows > rows or cost.buffers > buffers:
            yield f"{rpc}: {cost.rows} rows, {cost.buffers} buffers: {cost.query}\n{cost.plan}"

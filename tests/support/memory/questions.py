"""Everything that lists, searches, sums or exports, and a run: what each asks of the store is bounded by its answer."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from headrace.v1 import memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.budgets import begin, budget, claim
from tests.support.memory.gates import opening, submitted
from tests.support.memory.messages import content
from tests.support.memory.spend import charge, charged
from tests.support.memory.writing import Memory, new_id, run_line, step_line

OWNER = Identity("t-1", "u-1", scopes=ALL_SCOPES)
"""A user with the first chats of a tenant."""

LIMITS = memory_pb2.ModelLimits(provider_key="p", model="m", context_window_tokens=40_000, output_tokens=100)

BUDGETS = [budget(**of, nano_usd_max=10**12) for of in ({}, {"user": OWNER.user}, {"agent_key": "writer"})]


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
    await memory.call("UpdateChat", chat_id=chat_id, title="Mills")
    await memory.put_blob(chat_id, b"a picture")
    generation = await memory.acquire(chat_id, run_id, "a")
    await memory.renew(run_id, generation)
    await memory.append(chat_id, run_id, opening("t_1"), generation=generation)
    await memory.append(chat_id, run_id, submitted("t_1"), run_line(), generation=generation)
    await memory.chat(chat_id=chat_id)
    await memory.delete(chat_id)

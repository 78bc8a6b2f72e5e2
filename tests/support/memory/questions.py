"""Every RPC that lists, searches, sums or exports, and a run: the cost of each is bounded by its reply.

Each filter is used with a value that nothing has, one that one thing has, and one that all have.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from headrace.v1 import memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.budgets import begin, budget, claim
from tests.support.memory.gates import AT, approval, granting, opening, submitted
from tests.support.memory.messages import content
from tests.support.memory.spend import charge, charged
from tests.support.memory.writing import Memory, new_id, run_line, step_line

OWNER = Identity("t-1", "u-1", scopes=ALL_SCOPES)
"""The user of the first chats of a tenant."""

LIMITS = memory_pb2.ModelLimits(provider_key="p", model="m", context_window_tokens=40_000, output_tokens=100)

BUDGETS = [budget(**of, nano_usd_max=10**12) for of in ({}, {"user": OWNER.user}, {"agent_key": "writer"})]


HELD_MS = 2**40
"""Parked runs are due so much later that no service picks them up."""


async def write_sources(memory: Memory) -> None:
    """Write the chats that are copied: some with runs that have ended, one of them with a gate, and a long one."""
    with acting_as(OWNER):
        await memory.call("CreateWebhook", webhook_id=new_id(), url="https://hooks.example/")
        await memory.call("CreateSchedule", agent_key="writer", message="news?", cron="0 9 * * *")
        for lines in (2, 2, 2, 10):
            chat_id, run_id = await memory.begin("How does a water mill work?")
            steps = [charged(step_line(content("The headrace feeds the wheel.")), charge()) for _ in range(lines)]
            gates = [opening("t_1"), submitted("t_1")] if lines == 10 else []
            await memory.append(chat_id, run_id, *steps, *gates, run_line())
            await memory.begin_and_end("And then?", chat_id)


async def write_waiting_sources(memory: Memory) -> dict[str, str]:
    """Write further chats: shared, with parked runs that wait for a person. Return the ids that the calls need."""
    with acting_as(OWNER):
        chat_id, run_id = [await _write_waiting_source(memory) for _ in range(4)][-1]
        webhook_id = (await memory.call("ListWebhooks")).webhooks[0].webhook_id
    return {"chat_id": chat_id, "run_id": run_id, "webhook_id": webhook_id}


async def _write_waiting_source(memory: Memory) -> tuple[str, str]:
    chat_id, run_id = await memory.begin("May I?")
    await memory.append(chat_id, run_id, approval("t_1", "high"), granting("g_1", expires_at=AT))
    generation = await memory.acquire(chat_id, run_id, "a")
    await memory.release(run_id, generation, due_at=now_ms() + HELD_MS)
    await memory.begin_and_end("And then?", chat_id)
    await memory.call("ShareChat", chat_id=chat_id, shared_with=["user:somebody"])
    return chat_id, run_id


def list_questions(ids: dict[str, str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return each RPC that lists, searches or sums, with its most expensive arguments."""
    nobody, tenant = new_id(), {"scope": "tenant"}
    return (
        *(("Search", {"query": query}) for query in ("the", "zebra", "a")),
        *(("Search", {"query": "mill", "scope": scope}) for scope in ("chats", "insights")),
        ("ListChats", {"page_size": 200}),
        ("ListChats", {"scope": "shared"}),
        *(("ListRuns", fields) for fields in _list_run_filters(ids)),
        ("ListGates", {}),
        ("ListGates", {"scope": "own"}),
        *(
            ("ListGates", tenant | fields)
            for fields in (
                {},
                *({"agent_key": agent_key} for agent_key in ("nobody", "clerk")),
                *({"kind": kind} for kind in ("form", "approval")),
                *({"risk": risk} for risk in ("low", "high")),
                *({"older_than_ms": age} for age in (0, 2**40, 2**60)),
            )
        ),
        ("ListGrants", {}),
        ("ListGrants", tenant),
        *(("ListGrants", tenant | {"chat_id": chat_id}) for chat_id in (nobody, ids["chat_id"])),
        ("ListUnfinishedRuns", {}),
        ("ListUnfinishedRuns", {"run_id": ids["run_id"]}),
        ("ListUnfinishedRuns", {"without_owner": True}),
        ("ListSchedules", {}),
        *(("ListSchedules", tenant | {"page_size": 50, "user": user}) for user in ("", "nobody", OWNER.user)),
        ("ListDueSchedules", {"agent_keys": ["nobody"]}),
        ("ListFacts", {"include_ended": True}),
        *(("ListFacts", {"scope": "agent", "agent_key": agent_key}) for agent_key in ("nobody", "writer")),
        ("RecallFacts", {"query": "mill"}),
        ("RecallFacts", {"query": "mill", "scope": "agent", "agent_key": "writer"}),
        ("ExportFacts", {}),
        ("GetUsage", {}),
        *(
            ("GetUsage", tenant | fields)
            for fields in (
                {},
                {"group_by": ["agent", "model"]},
                {"user": OWNER.user, "group_by": ["day", "model"]},
                {"from_day": "2026-01-01", "to_day": "2026-01-31"},
                *({name: "nobody"} for name in ("user", "agent_key", "model", "key")),
                {"agent_key": "writer", "model": "m"},
            )
        ),
        *(
            ("ListDeliveries", {"webhook_id": ids["webhook_id"]} | fields)
            for fields in ({}, *({"state": state} for state in ("waiting", "delivered", "dead")))
        ),
        ("ListWebhooks", {}),
        ("ListRunWebhooks", {"run_id": ids["run_id"]}),
        ("ListKeys", {"user": "nobody", "state": "active"}),
        ("ListSuspendedUsers", {}),
        ("ListAudit", {"event": "nothing", "by": "nobody", "from_at": 1, "until_at": 2}),
        ("FindAgentVersions", {"agent_key": "nobody", "before": 9}),
        ("ListCheckpoints", {"chat_id": ids["chat_id"], "run_id": nobody, "kind": "query"}),
        ("ListPins", {"chat_id": ids["chat_id"]}),
        ("ListLimits", {}),
        ("ListErasures", {}),
        ("ListHolds", {"all": True}),
    )


def list_calls(memory: Memory, ids: dict[str, str]) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yield those calls, the exports, and the calls of a run."""
    for rpc, fields in list_questions(ids):
        yield rpc, lambda rpc=rpc, fields=fields: memory.call(rpc, **fields)
    for chat_id in ("", ids["chat_id"]):
        yield (
            "ExportGates",
            lambda chat_id=chat_id: memory.export_gates(chat_id=chat_id, since=now_ms(), before=1, with_content=True),
        )
    yield "a run", lambda: perform_run(memory)
    yield "MeasureBudgets", lambda: memory.call("MeasureBudgets", budgets=BUDGETS)


def _list_run_filters(ids: dict[str, str]) -> Iterator[dict[str, Any]]:
    single: dict[str, tuple[Any, ...]] = {
        "state": ("failed", "completed", "live", "running", "waiting"),
        "agent_key": ("nobody", "writer"),
        "user": ("nobody", OWNER.user),
        "older_than_ms": (0, 2**60),
        "began_after": (1, 2**60),
        "cost_at_least_nano_usd": (1, 2**60),
    }
    yield {}
    yield {"run_ids": [ids["run_id"], new_id()]}
    for name, values in single.items():
        yield from ({name: value} for value in values)
    for first, second in itertools.combinations(single, 2):
        yield {first: single[first][-1], second: single[second][-1]}
        yield {first: single[first][-1], second: single[second][0]}
        yield {first: single[first][0], second: single[second][-1]}


async def perform_run(memory: Memory) -> None:
    """Make all calls that a run and its chat need."""
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

"""The audit of gates: each step that the logs have, in order, of a chat or the tenant, and no content that is not asked
for. On both engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.hash_chain import verify_lines
from headrace.v1 import agent_pb2
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.engines import Serve
from tests.support.memory.gates import approval, closing, granting, opening, step
from tests.support.memory.writing import Memory, call, event_line, run_line, step_line

pytestmark = pytest.mark.engines

ADA = Identity("acme", "ada", "api_key:a", scopes=frozenset({"answer"}))
OLGA = Identity("acme", "olga", "api_key:o", scopes=frozenset({"operate"}))
OTTO = Identity("acme", "otto", "api_key:t", scopes=frozenset({"operate", "read_content"}))
STRANGER = Identity("globex", "eve", scopes=frozenset({"operate", "read_content"}))

SECRET = "12345678901234567890.50"
PAYLOAD = '{"decision": "approve", "note": "quietly", "grant": "chat", "grantMs": 60000}'


async def export(memory: Memory, **fields: Any) -> list[dict[str, Any]]:
    lines = await memory.export_gates(**fields)
    assert not verify_lines(lines).problem
    begin, *records, end = map(json.loads, lines)
    assert (begin["step"], end["count"]) == ("begin", len(records))
    return records


def tell(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["step"], record.get("gateId") or record["grantId"]) for record in records]


async def write_chat(memory: Memory) -> tuple[str, str]:
    """A run that has had each step of a gate."""
    chat_id, run_id = await memory.begin()
    answered = agent_pb2.RequestSubmit(tool_id="approval_1", payload=PAYLOAD, by="bob", credential="api_key:b")
    used = agent_pb2.GrantUse(grant_id="g_1", tool_id="call_2", tool_name="pay", grounds=["medium risk: it"])
    unrelated = agent_pb2.RequestSubmit(tool_id="of_a_program", payload="{}", by="bob")
    for line in (
        step_line(call("call_1", f'{{"amount": {SECRET}}}')),
        approval("approval_1", "medium"),
        step("approval_1", "claimed", "bob", holder="tab", until=9),
        step("approval_1", "asked_back", "bob", note="quietly"),
        step("approval_1", "delegated", "bob", to=["user:cleo"]),
        step("approval_1", "reminded"),
        step("approval_1", "escalated", to=["role:board"]),
        step("approval_1", "vote", "cleo", decision="approve", grant="chat", grant_ms=60_000, note="quietly"),
        event_line(seq=8, timestamp=1, request_submit=unrelated),
    ):
        await memory.append(chat_id, run_id, line)
    await memory.append(chat_id, run_id, event_line(seq=9, timestamp=1, request_submit=answered), granting("g_1"))
    await memory.append(chat_id, run_id, closing("approval_1", "answered"), opening("t_1"), opening("t_2"))
    await memory.append(chat_id, run_id, closing("t_1", "expired"), event_line(seq=10, timestamp=1, grant_use=used))
    await memory.append(chat_id, run_id, run_line("failed"))
    await memory.revoke_grant(chat_id, "g_1")
    return chat_id, run_id


STEPS = [
    *[(name, "approval_1") for name in ("asked", "claimed", "asked_back", "delegated", "reminded", "escalated")],
    *[("voted", "approval_1"), ("answered", "approval_1"), ("granted", "approval_1")],
    *[
        ("asked", "t_1"),
        ("asked", "t_2"),
        ("expired", "t_1"),
        ("used", "g_1"),
        ("cancelled", "t_2"),
        ("revoked", "g_1"),
    ],
]


async def test_each_step_is_told_with_its_author_and_nothing_that_was_said(memory: Memory) -> None:
    with acting_as(ADA):
        chat_id, run_id = await write_chat(memory)
        lines = await memory.export_gates(chat_id=chat_id)
        records = await export(memory, chat_id=chat_id)
        with pytest.raises(PermissionDenied, match="read_content"):
            await memory.export_gates(chat_id=chat_id, with_content=True)
    assert tell(records) == STEPS
    assert SECRET not in "".join(lines)
    assert "quietly" not in "".join(lines)
    asked, voted, answered, granted, revoked = (records[at] for at in (0, 6, 7, 8, -1))
    assert (asked["chatId"], asked["runId"], asked["n"], asked["toolName"]) == (chat_id, run_id, 3, "pay")
    assert (voted["by"], voted["decision"], voted["grant"]) == ("cleo", "approve", "chat")
    told = (answered["by"], answered["credential"], answered["decision"], answered["grant"])
    assert told == ("bob", "api_key:b", "approve", "chat")
    assert (granted["grantId"], granted["scope"], granted["madeBy"]) == ("g_1", "chat", ["bob"])
    assert (revoked["by"], revoked["credential"]) == ("ada", "api_key:a")
    with acting_as(OTTO):
        records = await export(memory, chat_id=chat_id, with_content=True)
    assert tell(records) == STEPS
    assert records[0]["arguments"] == f'{{"amount": {SECRET}}}'
    assert [record["note"] for record in records if "note" in record] == ["quietly", "quietly"]
    assert records[7]["payload"] == PAYLOAD


async def test_a_time_is_told_of_and_of_whom_the_caller_may_ask(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(STRANGER):
            await write_chat(memory)
        with acting_as(ADA):
            first, _ = await write_chat(memory)
            second, _ = await write_chat(memory)
            with pytest.raises(PermissionDenied, match="operate"):
                await memory.export_gates()
        with acting_as(OLGA):
            records = await export(memory)
            assert {record["chatId"] for record in records} == {first, second}
            assert [record["at"] for record in records] == sorted(record["at"] for record in records)
            assert tell([record for record in records if record["chatId"] == second]) == STEPS
            middle = records[len(records) // 2]["at"]
            halves = [*await export(memory, before=middle), *await export(memory, since=middle)]
            assert tell(halves) == tell(records)
            assert await export(memory, since=records[-1]["at"] + 1) == []
            with pytest.raises(InvalidRequest, match="since: must not be negative"):
                await memory.export_gates(since=-1)
        for caller in (STRANGER, Identity("acme", "bob")):
            with acting_as(caller), pytest.raises(NotFound):
                await memory.export_gates(chat_id=first)

"""The audit log: which events it has, that it is only appended to, and that every change to it is detected, on both
engines.

Lines that the store refuses are stored as soon as it accepts them, in order, before later ones.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from headrace.errors import InvalidRequest, OutOfRange, Overloaded
from headrace.hash_chain import LogVerifier
from headrace.streams import rpc_errors
from headrace.v1 import audit_pb2, memory_pb2
from services.memory.storage.audit import NO_HEAD, WAITING_MAX, AuditTrail, Head
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.audit import ADA, add_audit_lines
from tests.support.memory.engines import Serve
from tests.support.memory.gates import approval, submitted
from tests.support.memory.writing import Memory, new_id
from tests.support.waiting import wait_until

pytestmark = pytest.mark.engines

EVE = Identity("globex", "eve", scopes=ALL_SCOPES)
SECRET = "nobody is to read this"


async def export(memory: Memory, after_seq: int = 0) -> list[str]:
    with rpc_errors():
        request = audit_pb2.ExportAuditRequest(after_seq=after_seq)
        return [line.line async for line in memory.audit.ExportAudit(request)]


async def list_events(memory: Memory, **fields: Any) -> list[str]:
    return [line.event for line in (await memory.call("ListAudit", **fields)).lines]


async def test_each_change_is_a_line_with_its_user_and_without_message_text(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(ADA):
            created = await memory.call("CreateKey", name="ci", user="bob")
            await memory.call("UpdateKey", key_id=created.key.key_id, runs_max=2)
            await memory.call("RevokeKey", key_id=created.key.key_id)
            chat_id, run_id = await memory.begin_with(approval("g1", "write"), message=SECRET)
            await memory.append(chat_id, run_id, submitted("g1", by="ada"))
            with rpc_errors():
                await memory.call("ShareChat", chat_id=chat_id, shared_with=["tenant"], request_id=new_id())
                version = memory_pb2.PutAgentVersionRequest(agent_key="writer", definition="{}")
                await memory.stub.PutAgentVersion(version)
                await memory.stub.PutAgentVersion(version)  # known: nothing is new
            await memory.export_gates()
            other_id, _ = await memory.begin_and_end(SECRET)
            await memory.delete(other_id)
            events = await list_events(memory)
            lines = await export(memory)
    assert events[::-1] == [
        *("key.made", "key.changed", "key.revoked", "gate.answered", "chat.shared", "agent.published"),
        *("gates.exported", "chat.deleted"),
    ]
    records = [json.loads(line) for line in lines]
    assert records[-1]["event"] == "audit.exported"
    assert all(record["credential"] == "api_key:ada" for record in records[:3])
    assert records[3]["by"] == "ada"
    assert (records[3]["chatId"], records[3]["gateId"]) == (chat_id, "g1")
    assert records[1]["changed"] == "runs_max"
    assert SECRET not in "".join(lines)
    verifier = LogVerifier()
    verifier.add_lines(lines)
    assert verifier.finish().problem == ""


async def test_a_tenants_log_is_readable_by_its_admins_only(memory: Memory) -> None:
    await add_audit_lines(memory)
    await memory.call("RecordAudit", event="sign_in.refused", details='{"address": "10.0.0.7", "count": 3}')
    with acting_as(EVE):
        assert await list_events(memory) == []
    with acting_as(Identity("default", "root", scopes=ALL_SCOPES)):
        assert await list_events(memory) == ["sign_in.refused"]


async def test_lines_are_listed_by_page_and_filter(memory: Memory) -> None:
    await add_audit_lines(memory, 5)
    await memory.call("RecordAudit", event="chat.deleted", tenant="acme")
    with acting_as(ADA):
        first = await memory.call("ListAudit", page_size=2, event="key")
        assert [line.seq for line in first.lines] == [5, 4]
        second = await memory.call("ListAudit", page_size=9, page_token=first.next_page_token)
        assert ([line.seq for line in second.lines], second.next_page_token) == ([3, 2, 1], "")
        assert await list_events(memory, event="chat.deleted") == ["chat.deleted"]
        assert await list_events(memory, event="chat", by="nobody") == []
        (line,) = (await memory.call("ListAudit", event="chat")).lines
        assert await list_events(memory, event="chat", by=line.by or None, from_at=line.at) == ["chat.deleted"]
        assert await list_events(memory, event="chat", until_at=line.at) == []
        for wrong in ({"page_token": "x"}, {"page_size": 501}):
            with pytest.raises(InvalidRequest):
                await memory.call("ListAudit", **wrong)


@pytest.mark.parametrize("details", ["[]", '{"a": 1.5}', '{"a": {}}', '{"seq": 1}'])
async def test_invalid_details_are_rejected(memory: Memory, details: str) -> None:
    with pytest.raises(InvalidRequest):
        await memory.call("RecordAudit", event="x", tenant="acme", details=details)


@pytest.mark.engines("postgres")
async def test_a_log_continues_after_a_restart_and_two_writers_make_one_chain(serve: Serve) -> None:
    async with serve() as memory:
        await add_audit_lines(memory)
    async with serve() as memory:
        await asyncio.gather(add_audit_lines(memory), add_audit_lines(memory))
        with acting_as(ADA):
            report = await memory.call("VerifyAudit")
            assert (report.lines, report.first_seq, report.last_seq, report.problem) == (12, 1, 12, "")
            assert len(await export(memory, after_seq=10)) == 3


async def test_a_follower_receives_each_line_once(memory: Memory) -> None:
    await add_audit_lines(memory, 2)
    async with asyncio.timeout(30):
        with acting_as(ADA), rpc_errors():
            lines = memory.audit.ExportAudit(audit_pb2.ExportAuditRequest(follow=True))
            numbers = [json.loads((await anext(aiter(lines))).line)["seq"] for _ in range(3)]
            await add_audit_lines(memory, 2)
            numbers += [json.loads((await anext(aiter(lines))).line)["seq"] for _ in range(2)]
            lines.cancel()
    assert numbers == [1, 2, 3, 4, 5]


async def test_exporting_after_a_line_that_does_not_exist_yet_is_rejected(memory: Memory) -> None:
    await add_audit_lines(memory, 2)
    request = audit_pb2.ExportAuditRequest(after_seq=3, follow=True)
    with acting_as(ADA), pytest.raises(OutOfRange, match="ends with line 2"), rpc_errors():
        await anext(aiter(memory.audit.ExportAudit(request)))


class RefusingStore:
    """A store that refuses lines while `is_away`."""

    def __init__(self) -> None:
        self.is_away = False
        self.lines: list[Mapping[str, Any]] = []

    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        if self.is_away:
            raise Overloaded("away")
        self.lines += records

    async def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        for line in self.lines:
            yield [str(line)]

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        return []

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        return []

    async def read_head(self, tenant: str) -> Head:
        return NO_HEAD

    async def forget(self, before_at: int) -> None:
        pass


async def test_a_refused_line_is_stored_later_and_before_the_next() -> None:
    store = RefusingStore()
    audit = AuditTrail(store, lambda: 7, "default")
    retrying = asyncio.create_task(audit.run_retries())
    store.is_away = True
    await audit.record_of("acme", "key.made", keyId="1")
    await audit.record_of("", "sign_in.refused", count=2)
    store.is_away = False
    await audit.record_of("acme", "key.made", keyId="3", empty="")
    await wait_until(lambda: len(store.lines) >= 3)
    retrying.cancel()
    assert store.lines == [
        {"at": 7, "event": "key.made", "tenant": "acme", "keyId": "1"},
        {"at": 7, "event": "sign_in.refused", "tenant": "default", "count": 2},
        {"at": 7, "event": "key.made", "tenant": "acme", "keyId": "3"},
    ]


async def test_the_number_of_waiting_lines_is_bounded() -> None:
    store = RefusingStore()
    audit = AuditTrail(store, lambda: 7, "default")
    store.is_away = True
    for _ in range(WAITING_MAX + 5):
        await audit.record_of("acme", "key.made")
    store.is_away = False
    retrying = asyncio.create_task(audit.run_retries())
    await wait_until(lambda: len(store.lines) >= WAITING_MAX)
    retrying.cancel()
    assert len(store.lines) == WAITING_MAX

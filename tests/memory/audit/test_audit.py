"""The audit log: what is in it, that it is only appended to, and that whatever is done to it is found. On both
engines.

Lines that a store refuses are stored as soon as it takes them, in order, before those that come later.
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
from tests.support.memory.audit import ADA, make_deeds
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
        return [one.line async for one in memory.audit.ExportAudit(request)]


async def list_events(memory: Memory, **fields: Any) -> list[str]:
    return [line.event for line in (await memory.call("ListAudit", **fields)).lines]


async def test_what_is_done_is_a_line_with_who_and_nothing_that_was_said(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(ADA):
            made = await memory.call("CreateKey", name="ci", user="bob")
            await memory.call("UpdateKey", key_id=made.key.key_id, runs_max=2)
            await memory.call("RevokeKey", key_id=made.key.key_id)
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


async def test_a_tenants_log_is_its_admins(memory: Memory) -> None:
    await make_deeds(memory)
    await memory.call("RecordAudit", event="sign_in.refused", details='{"address": "10.0.0.7", "count": 3}')
    with acting_as(EVE):
        assert await list_events(memory) == []
    with acting_as(Identity("default", "root", scopes=ALL_SCOPES)):
        assert await list_events(memory) == ["sign_in.refused"]


async def test_pages_and_filters(memory: Memory) -> None:
    await make_deeds(memory, 5)
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
async def test_what_is_no_details_is_refused(memory: Memory, details: str) -> None:
    with pytest.raises(InvalidRequest):
        await memory.call("RecordAudit", event="x", tenant="acme", details=details)


@pytest.mark.engines("postgres")
async def test_a_log_goes_on_after_a_restart_and_two_writers_make_one_chain(serve: Serve) -> None:
    async with serve() as memory:
        await make_deeds(memory)
    async with serve() as memory:
        await asyncio.gather(make_deeds(memory), make_deeds(memory))
        with acting_as(ADA):
            report = await memory.call("VerifyAudit")
            assert (report.lines, report.first_seq, report.last_seq, report.problem) == (12, 1, 12, "")
            assert len(await export(memory, after_seq=10)) == 3


async def test_a_follower_gets_each_line_once(memory: Memory) -> None:
    await make_deeds(memory, 2)
    async with asyncio.timeout(30):
        with acting_as(ADA), rpc_errors():
            lines = memory.audit.ExportAudit(audit_pb2.ExportAuditRequest(follow=True))
            seen = [json.loads((await anext(aiter(lines))).line)["seq"] for _ in range(3)]
            await make_deeds(memory, 2)
            seen += [json.loads((await anext(aiter(lines))).line)["seq"] for _ in range(2)]
            lines.cancel()
    assert seen == [1, 2, 3, 4, 5]


async def test_a_place_that_the_log_has_not_come_to_is_refused(memory: Memory) -> None:
    await make_deeds(memory, 2)
    request = audit_pb2.ExportAuditRequest(after_seq=3, follow=True)
    with acting_as(ADA), pytest.raises(OutOfRange, match="ends with line 2"), rpc_errors():
        await anext(aiter(memory.audit.ExportAudit(request)))


class RefusingStore:
    """A store that refuses while it is away."""

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


async def test_a_line_that_is_refused_is_stored_later_and_before_the_next() -> None:
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


async def test_what_waits_has_a_bound() -> None:
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

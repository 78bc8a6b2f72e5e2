"""The audit log: its RPCs, and its records of appends and reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import InvalidRequest, OutOfRange
from headrace.hash_chain import LogVerifier
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import AuditServiceServicer
from services.memory.log.lines import Event, Known
from services.memory.storage.gates.rows import decode_gate_event
from services.runtime.auth import identity
from services.runtime.clock import monotonic_s
from services.runtime.formats.same_fields import copy_fields
from services.runtime.newest import NewestDict

if TYPE_CHECKING:
    from services.memory.storage.audit import AuditTrail
    from services.runtime.auth.identity import Identity
    from services.runtime.rpc.interceptors import Context

STEPS = frozenset({"vote", "delegated", "asked"})
"""Steps at a gate that are a person's answer, or forward the question."""


def find_answers(lines: Iterable[Known]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of AuditTrail.record_of for each answer of a person: names and details."""
    for line in lines:
        if not isinstance(line, Event):
            continue
        event = decode_gate_event(line.event)
        found = {"by": event.by, "credential": event.credential, "chatId": line.chat_id, "runId": line.run_id}
        if event.type == "request.submit":
            yield found | {"gateId": event.tool_id, "step": "answer"}
        elif event.type == "gate.step" and event.step in STEPS:
            yield found | {"gateId": event.gate_id, "step": event.step, "decision": event.decision}


TOLD_S = 3600.0
"""Time within which repeated reads of a chat by a client, such as its pages, are recorded once."""

READS_MAX = 10_000
"""Maximum reads remembered; one forgotten early is recorded again."""


class ContentReads:
    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit
        self._told_at: NewestDict[tuple[Identity, str, str], float] = NewestDict(READS_MAX)
        """By reader, credential and chat, oldest first."""

    async def record(self, reader: Identity, owner: Identity, chat_id: str) -> None:
        """Record that `reader` is shown a chat of `owner`; call it before showing the chat."""
        if reader == owner and not reader.makers:
            return
        key, now = (reader, reader.credential, chat_id), monotonic_s()
        if now - self._told_at.get(key, -TOLD_S) < TOLD_S:
            return
        makers = " ".join(sorted(reader.makers))
        await self._audit.record("content.read", reader, chatId=chat_id, of=owner.user, makers=makers)
        self._told_at[key] = now


PAGE_SIZE, PAGE_SIZE_MAX = 100, 500

SCANNED_MAX = 20_000
"""Maximum lines that a filtered page searches; the next page continues after them."""

PORTION_LINES = 500

FOLLOW_S = 1.0
"""Interval at which a follower's log is polled."""

_KNOWN = ("event", "tenant", "by", "credential", "seq", "at", "previous", "hash")


class _Record(msgspec.Struct):
    seq: int = 0
    at: int = 0
    event: str = ""
    by: str = ""
    credential: str = ""


_RECORD = msgspec.json.Decoder(_Record)


class AuditService(AuditServiceServicer):
    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    async def ListAudit(self, request: audit_pb2.ListAuditRequest, context: Context) -> audit_pb2.ListAuditResponse:
        tenant = identity.require_identity().tenant
        size = request.page_size if request.HasField("page_size") else PAGE_SIZE
        if not 1 <= size <= PAGE_SIZE_MAX:
            raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_SIZE_MAX}")
        if (token := request.page_token) and not token.isdecimal():
            raise InvalidRequest.of("pageToken", "must be that of a page before")
        before = int(token) if token else 1 << 62
        found: list[audit_pb2.AuditLine] = []
        scanned, has_more = 0, True
        while len(found) < size and scanned < SCANNED_MAX:
            lines = await self._trail.store.read_newest(tenant, before, PAGE_SIZE_MAX)
            scanned += len(lines)
            if not lines:
                has_more = False
                break
            for line in map(_make_line, lines):
                before = line.seq
                if _is_wanted(line, request):
                    found.append(line)
                if len(found) == size:
                    break
        has_more = has_more and before > 1
        return audit_pb2.ListAuditResponse(lines=found, next_page_token=str(before) if has_more else "")

    async def ExportAudit(
        self, request: audit_pb2.ExportAuditRequest, context: Context
    ) -> AsyncGenerator[audit_pb2.ExportAuditResponse]:
        caller = identity.require_identity()
        if request.after_seq < 0:
            raise InvalidRequest.of("afterSeq", "must not be negative")
        last, _ = await self._trail.store.read_head(caller.tenant)
        if request.after_seq > last:
            raise OutOfRange(f"afterSeq: the log ends with line {last}", field="afterSeq")
        await self._trail.record("audit.exported", caller, afterSeq=request.after_seq, follow=request.follow)
        last, _ = await self._trail.store.read_head(caller.tenant)
        seq = request.after_seq
        while request.follow or seq < last:
            count = PORTION_LINES if request.follow else min(PORTION_LINES, last - seq)
            lines = await self._trail.store.read_behind(caller.tenant, seq, count)
            for line in lines:
                yield audit_pb2.ExportAuditResponse(line=line)
                seq = max(_make_line(line).seq, seq + 1)
            if not lines:
                if not request.follow:
                    return
                await asyncio.sleep(FOLLOW_S)

    async def VerifyAudit(
        self, request: audit_pb2.VerifyAuditRequest, context: Context
    ) -> audit_pb2.VerifyAuditResponse:
        tenant = identity.require_identity().tenant
        head = await self._trail.store.read_head(tenant)
        verifier = LogVerifier(head)
        async with aclosing(self._trail.store.read_all(tenant)) as portions:
            async for lines in portions:
                await asyncio.to_thread(verifier.add_lines, lines)  # hashing takes longer than others should wait
        return copy_fields(verifier.finish(), audit_pb2.VerifyAuditResponse)

    async def RecordAudit(
        self, request: audit_pb2.RecordAuditRequest, context: Context
    ) -> audit_pb2.RecordAuditResponse:
        details = _parse_details(request.details)
        await self._trail.record_of(request.tenant, request.event, request.by, request.credential, **details)
        return audit_pb2.RecordAuditResponse()


def _is_wanted(line: audit_pb2.AuditLine, request: audit_pb2.ListAuditRequest) -> bool:
    return (
        (request.event in ("", line.event) or line.event.startswith(f"{request.event}."))
        and request.by in ("", line.by)
        and line.at >= request.from_at
        and (not request.until_at or line.at < request.until_at)
    )


def _parse_details(text: str) -> dict[str, Any]:
    details = json.loads(text) if text else {}
    if not isinstance(details, dict) or not all(type(value) in (str, int, bool) for value in details.values()):
        raise InvalidRequest.of("details", "must be an object of texts, whole numbers and true or false")
    if known := sorted(set(details) & set(_KNOWN)):
        raise InvalidRequest.of("details", f"{known[0]} is a field of its own")
    return details


def _make_line(line: str) -> audit_pb2.AuditLine:
    try:
        record = _RECORD.decode(line)
    except msgspec.DecodeError:  # verify says so
        record = _Record()
    return copy_fields(record, audit_pb2.AuditLine, line=line)

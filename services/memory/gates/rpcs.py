"""The RPCs of gates, which wait for people, and of grants, approvals that cover later calls."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import common_pb2, gates_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.log.grants import REVOKED
from services.memory.log.lines import Revocation, make_stamp
from services.memory.log.raw_json import load_delta
from services.memory.storage.gates.query import GateQuery, GrantQuery
from services.memory.storage.index_rows import describe_progress
from services.memory.storage.paging import parse_named_page, read_page
from services.runtime.auth import identity
from services.runtime.auth.access import may_answer
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from services.memory.log.chat import Chat
    from services.memory.log.grants import GrantInfo
    from services.memory.storage.engine import Engine
    from services.memory.storage.gates.rows import GateEntry, GrantEntry
    from services.memory.storage.gates.watch import GateReader
    from services.runtime.rpc.interceptors import Context


class GateRpcs(MemoryServiceServicer):
    """RPCs of the memory service that list what waits for a person."""

    _engine: Engine

    async def ListGates(self, request: gates_pb2.ListGatesRequest, context: Context) -> gates_pb2.ListGatesResponse:
        if request.older_than_ms < 0:
            raise InvalidRequest.of("olderThanMs", "must not be negative")
        query = _make_query(request)
        size, after = parse_named_page(request.page_size, request.page_token)
        if query is None:
            return gates_pb2.ListGatesResponse()
        opened_before = max(now_ms() - request.older_than_ms, 0) if request.HasField("older_than_ms") else None
        query = replace(query, opened_before=opened_before, size=size, after=after)
        progress = self._engine.index.get_progress()
        gates, next_page_token = await read_page(self._engine.gates.list_gates, query)
        return gates_pb2.ListGatesResponse(
            gates=map(_make_gate, gates),
            next_page_token=next_page_token,
            index_progress=describe_progress(progress),
        )

    async def WatchGates(
        self, request: gates_pb2.WatchGatesRequest, context: Context
    ) -> AsyncGenerator[gates_pb2.WatchGatesResponse]:
        # A caller who may answer none gets none: no gate belongs to the tenant with the empty name.
        query = _make_query(request) or GateQuery(tenant="")
        with self._engine.gate_watch.reading(query) as reader:
            while not reader.is_closed:
                if reader.must_list:
                    async with aclosing(self._list_waiting(reader)) as listed:
                        async for news in listed:
                            yield news
                for gate in await reader.take():
                    yield gates_pb2.WatchGatesResponse(gate=_make_gate(gate))

    async def _list_waiting(self, reader: GateReader) -> AsyncGenerator[gates_pb2.WatchGatesResponse]:
        """Yield all open gates; ends early if the reader falls behind."""
        reader.begin_list()
        yield gates_pb2.WatchGatesResponse(list_begin=gates_pb2.GateListBegin())
        query, progress = reader.query, self._engine.index.get_progress()
        while not reader.must_list:
            gates, after = await self._engine.gates.list_gates(query)
            for gate in gates:
                yield gates_pb2.WatchGatesResponse(gate=_make_gate(gate))
            if after is None:
                end = gates_pb2.GateListEnd(index_progress=describe_progress(progress))
                yield gates_pb2.WatchGatesResponse(list_end=end)
                return
            query = replace(query, after=after)

    async def GetGate(self, request: gates_pb2.GetGateRequest, context: Context) -> gates_pb2.GetGateResponse:
        caller = identity.require_identity()
        gate = await self._engine.gates.find_gate(caller.tenant, request.run_id, request.gate_id)
        if gate is None or not _may_see(gate, caller):
            raise NotFound(f"run {request.run_id} has no gate {request.gate_id!r}", runId=request.run_id)
        return gates_pb2.GetGateResponse(gate=_make_gate(gate))

    async def ListGrants(self, request: gates_pb2.ListGrantsRequest, context: Context) -> gates_pb2.ListGrantsResponse:
        caller = identity.require_scope("operate") if request.scope == "tenant" else identity.require_identity()
        size, after = parse_named_page(request.page_size, request.page_token)
        query = GrantQuery(
            tenant=caller.tenant,
            now=now_ms(),
            user=None if request.scope == "tenant" else caller,
            chat_id=request.chat_id or None,
            size=size,
            after=after,
        )
        progress = self._engine.index.get_progress()
        grants, next_page_token = await read_page(self._engine.gates.list_grants, query)
        return gates_pb2.ListGrantsResponse(
            grants=map(_make_grant, grants),
            next_page_token=next_page_token,
            index_progress=describe_progress(progress),
        )

    async def RevokeGrant(
        self, request: gates_pb2.RevokeGrantRequest, context: Context
    ) -> gates_pb2.RevokeGrantResponse:
        caller = identity.require_identity()
        chat, grant = await self._find_grant(request, caller)
        if grant.end:
            await self._engine.chats.load_durable(request.chat_id)  # its content may still be rolled back
            chat, grant = await self._find_grant(request, caller)
        if grant.end or (grant.expires_at and grant.expires_at <= now_ms()):
            return gates_pb2.RevokeGrantResponse(status="revoked" if grant.end == REVOKED else "ended")
        with identity.acting_as(chat.info.owner):  # as the chat's owner, also if another user revokes
            stamp = make_stamp(request.chat_id)
        line = Revocation(**stamp, grant_id=grant.grant_id, by=caller.user, credential=caller.credential)
        await self._engine.chats.append(request.chat_id, [line], request.ByteSize())
        details = {"chatId": request.chat_id, "runId": grant.run_id, "grantId": grant.grant_id}
        await self._engine.audit.record("grant.revoked", caller, **details)
        return gates_pb2.RevokeGrantResponse(status="revoked")

    async def _find_grant(self, request: gates_pb2.RevokeGrantRequest, caller: Identity) -> tuple[Chat, GrantInfo]:
        """Return the grant with its chat. Raises NotFound, also if the caller may not see it."""
        missing = NotFound(f"chat {request.chat_id} has no grant {request.grant_id!r}", chatId=request.chat_id)
        try:
            chat = await self._engine.chats.load(request.chat_id)
        except NotFound:
            raise missing from None
        grant = chat.info.grants.get(request.grant_id)
        if grant is None or chat.info.owner.tenant != caller.tenant:
            raise missing
        if caller != chat.info.owner and caller.user not in grant.made_by and "operate" not in caller.scopes:
            raise missing
        return chat, grant


def _make_query(request: gates_pb2.ListGatesRequest | gates_pb2.WatchGatesRequest) -> GateQuery | None:
    """Return the query for the requested gates; None if the caller asks for answerable gates but may answer none.

    Raises:
        PermissionDenied: The caller may not use the scope `tenant`.
    """
    caller = identity.require_identity()
    is_answerable = request.scope not in ("own", "tenant")
    if request.scope == "tenant":
        identity.require_scope("operate")
    elif is_answerable and "answer" not in caller.scopes:
        return None
    return GateQuery(
        tenant=caller.tenant,
        answerer=caller if is_answerable else None,
        requester=caller.user if request.scope == "own" else None,
        agent_key=request.agent_key or None,
        kind=request.kind or None,
        risk=request.risk or None,
    )


def _may_see(gate: GateEntry, caller: Identity) -> bool:
    if gate.requester == caller.user or "operate" in caller.scopes:
        return True
    requester = Identity.from_stored(gate.tenant, gate.requester)
    return may_answer(gate.names, requester, caller, not_requester=bool(gate.not_requester))


def _make_gate(entry: GateEntry) -> gates_pb2.Gate:
    is_claimed = not entry.closed_at and entry.claimed_until > now_ms()
    return copy_fields(
        entry,
        gates_pb2.Gate,
        answerers=common_pb2.Answerers(
            any_of=entry.names,
            not_requester=bool(entry.not_requester),
            count=entry.votes_needed if entry.votes_needed > 1 else None,
        ),
        voters=entry.voters.split(),
        claimed_by=entry.claimed_by if is_claimed else None,
        claimed_until=entry.claimed_until if is_claimed else None,
    )


def _make_grant(entry: GrantEntry) -> gates_pb2.Grant:
    event = load_delta(msgspec.Raw(entry.event.encode()))
    assert event is not None, "a row is made from an event that is known"
    made = event.grant_make
    return copy_fields(
        entry,
        gates_pb2.Grant,
        scope=made.scope,
        tool_name=made.tool_name,
        grounds=made.grounds,
        risk=made.risk,
        answerers=made.answerers if made.HasField("answerers") else None,
        made_by=made.made_by,
        tool_sha256=made.tool_sha256 or None,
    )

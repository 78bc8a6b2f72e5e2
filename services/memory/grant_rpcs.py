"""The RPCs of grants: approvals that hold for later calls, in force until their line says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import msgspec

from headrace.errors import NotFound
from headrace.v1 import gates_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.log.lines import Revocation
from services.memory.log.proto_json import load_delta
from services.memory.log.stamps import make_stamp
from services.memory.log.views.grants import REVOKED
from services.memory.storage.gates.grant_query import GrantQuery, parse_grant_page
from services.memory.storage.index_progress import describe_progress
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.log.chat import Chat
    from services.memory.log.views.grants import GrantInfo
    from services.memory.storage.engine import Engine
    from services.memory.storage.gates.rows import GrantEntry
    from services.runtime.auth.identity import Identity

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class GrantRpcs(MemoryServiceServicer):
    """The part of the memory service for what people have approved ahead."""

    _engine: Engine

    async def ListGrants(self, request: gates_pb2.ListGrantsRequest, context: Context) -> gates_pb2.ListGrantsResponse:
        caller = identity.require_scope("operate") if request.scope == "tenant" else identity.require_identity()
        size, after = parse_grant_page(request.page_size, request.page_token)
        query = GrantQuery(
            tenant=caller.tenant,
            now=now_ms(),
            user=None if request.scope == "tenant" else caller,
            chat_id=request.chat_id or None,
            size=size,
            after=after,
        )
        progress = self._engine.index.get_progress()
        grants, next_page_token = await self._engine.gates.list_grants(query)
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
            await self._engine.chats.load_settled(request.chat_id)  # what it shows may still be taken back
            chat, grant = await self._find_grant(request, caller)
        if grant.end or (grant.expires_at and grant.expires_at <= now_ms()):
            return gates_pb2.RevokeGrantResponse(status="revoked" if grant.end == REVOKED else "ended")
        with identity.acting_as(chat.info.owner):  # whose chat it is, whoever revokes
            stamp = make_stamp(request.chat_id)
        line = Revocation(**stamp, grant_id=grant.grant_id, by=caller.user, credential=caller.credential)
        await self._engine.chats.append(request.chat_id, [line], request.ByteSize())
        told = {"chatId": request.chat_id, "runId": grant.run_id, "grantId": grant.grant_id}
        await self._engine.audit.record("grant.revoked", caller, **told)
        return gates_pb2.RevokeGrantResponse(status="revoked")

    async def _find_grant(self, request: gates_pb2.RevokeGrantRequest, caller: Identity) -> tuple[Chat, GrantInfo]:
        """Return the grant with its chat. Raises NotFound, also where the caller may not see it."""
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


def _make_grant(entry: GrantEntry) -> gates_pb2.Grant:
    event = load_delta(msgspec.Raw(entry.event.encode()))
    assert event is not None, "a row is made from an event that is known"
    made = event.grant_make
    return gates_pb2.Grant(
        grant_id=entry.grant_id,
        chat_id=entry.chat_id,
        run_id=entry.run_id,
        scope=made.scope,
        tool_name=made.tool_name,
        grounds=made.grounds,
        risk=made.risk,
        answerers=made.answerers if made.HasField("answerers") else None,
        made_by=made.made_by,
        made_at=entry.made_at,
        expires_at=entry.expires_at or None,
        requester=entry.requester,
        tool_sha256=made.tool_sha256 or None,
    )

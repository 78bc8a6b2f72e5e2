"""ExportGates: who has done what at gates, in the order of the commits, as lines of a hash chain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from headrace.errors import InvalidRequest, NotFound
from headrace.hash_chain import FIRST, chain_line
from headrace.v1 import gates_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.log.chat import chat_not_found
from services.memory.requests.gate_audit import read_gate_steps
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity
    from services.runtime.rpc.interceptors import Context


FORMAT = "headrace.gates/1"

STEPS_MAX = 100_000
"""Steps of one export, some 500 bytes each: they are sorted before the first is sent."""

log = structlog.get_logger()


class GateAuditRpcs(MemoryServiceServicer):
    """The part of the memory service for those who audit."""

    _engine: Engine

    async def ExportGates(
        self, request: gates_pb2.ExportGatesRequest, context: Context
    ) -> AsyncGenerator[gates_pb2.ExportGatesResponse]:
        caller = _check_request(request)
        log.info("gates exported", chat_id=request.chat_id, with_content=request.with_content, user=caller.user)
        facts = {"chatId": request.chat_id, "withContent": request.with_content}
        await self._engine.audit.record("gates.exported", caller, **facts)
        steps = await self._read_steps(request, caller)
        steps.sort(key=lambda step: (step["at"], step["chatId"], step["n"]))
        records = [_make_begin(request, caller), *steps, {"step": "end", "count": len(steps)}]
        previous = FIRST
        for seq, record in enumerate(records):
            line, previous = chain_line(previous, {"seq": seq} | record)
            yield gates_pb2.ExportGatesResponse(line=line)

    async def _read_steps(self, request: gates_pb2.ExportGatesRequest, caller: Identity) -> list[dict[str, Any]]:
        if request.chat_id:
            chat_ids = [request.chat_id]
        else:
            chat_ids = await self._engine.gates.list_gate_chats(caller.tenant, request.since)
        before = request.before if request.HasField("before") else None
        steps: list[dict[str, Any]] = []
        for chat_id in chat_ids:
            try:
                chat = await self._engine.chats.load(chat_id)
            except NotFound:
                if request.chat_id:
                    raise
                continue  # it was deleted meanwhile
            if request.chat_id and not _may_export(chat.info.owner, caller):
                raise chat_not_found(chat_id)
            # A long chat takes longer than others should wait.
            steps += await asyncio.to_thread(
                read_gate_steps, chat_id, list(chat.log), request.since, before, with_content=request.with_content
            )
            if len(steps) > STEPS_MAX:
                raise InvalidRequest.of("since", f"leaves more than {STEPS_MAX:,} steps: ask for less time")
        return steps


def _check_request(request: gates_pb2.ExportGatesRequest) -> Identity:
    """Return the caller. Raises InvalidRequest, PermissionDenied."""
    for name in ("since", "before"):
        if getattr(request, name) < 0:
            raise InvalidRequest.of(name, "must not be negative")
    if request.with_content:
        identity.require_scope("read_content")
    return identity.require_identity() if request.chat_id else identity.require_scope("operate")


def _may_export(owner: Identity, caller: Identity) -> bool:
    return owner == caller or (owner.tenant == caller.tenant and "operate" in caller.scopes)


def _make_begin(request: gates_pb2.ExportGatesRequest, caller: Identity) -> dict[str, Any]:
    """Say what was asked for, by whom: a part of the chain, so that no export passes for another."""
    found: dict[str, Any] = {"step": "begin", "format": FORMAT, "at": now_ms(), "tenant": caller.tenant}
    found |= {"by": caller.user} | ({"credential": caller.credential} if caller.credential else {})
    asked = {"chatId": request.chat_id, "since": request.since, "before": request.before}
    return found | {name: value for name, value in asked.items() if value} | {"withContent": request.with_content}

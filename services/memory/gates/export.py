"""ExportGates: people's actions at gates, in commit order, as lines of a hash chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from msgspec import Raw

from headrace.errors import InvalidRequest, NotFound
from headrace.hash_chain import FIRST, chain_line
from headrace.v1 import gates_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.log.chat import chat_not_found
from services.memory.log.lines import Event, Known, Line, Revocation, Run, Step, Unknown
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity
    from services.runtime.rpc.interceptors import Context

FORMAT = "headrace.gates/1"

STEPS_MAX = 100_000
"""Maximum steps of one export, some 500 bytes each; they are sorted before the first is sent."""

log = structlog.get_logger()


class GateExportRpcs(MemoryServiceServicer):
    """RPCs of the memory service for auditors."""

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
                continue  # it was deleted in the meantime
            owner, is_operator = chat.info.owner, "operate" in caller.scopes
            if request.chat_id and owner != caller and not (is_operator and owner.tenant == caller.tenant):
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


def _make_begin(request: gates_pb2.ExportGatesRequest, caller: Identity) -> dict[str, Any]:
    """Return the export's parameters and caller as the chain's first line, so that no export can pass for another."""
    found: dict[str, Any] = {"step": "begin", "format": FORMAT, "at": now_ms(), "tenant": caller.tenant}
    found |= {"by": caller.user} | ({"credential": caller.credential} if caller.credential else {})
    asked = {"chatId": request.chat_id, "since": request.since, "before": request.before}
    return found | {name: value for name, value in asked.items() if value} | {"withContent": request.with_content}


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_VALUE = msgspec.json.Decoder()


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)

_RULE = ("risk", "answerers", "grounds")

_FIELDS: dict[str, tuple[str, ...]] = {
    "gate.open": (
        *("kind", "agentKey", "toolId", "toolName", "reason", "viewportKey", "expiresAt", "onExpiry"),
        *("remindAt", "escalateAt", *_RULE),
    ),
    "gate.step": ("by", "credential", "to", "decision", "until", "holder", "grant", "grantMs"),
    "request.submit": ("by", "credential"),
    "gate.close": ("answeredBy", "credential"),
    "grant.make": ("grantId", "scope", "toolName", "madeBy", "expiresAt", *_RULE),
    "grant.use": ("grantId", "toolId", "toolName", "grounds"),
}
"""Exported fields of events: who did what, without content. Unknown events are not exported."""

_STEPS = {"gate.open": "asked", "grant.make": "granted", "grant.use": "used"}


@dataclass(slots=True)
class _Reading:
    """State of a chat's gates while its lines are read."""

    with_content: bool
    kinds: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Kinds of gates by run and id: approval, form or question."""
    waiting: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    """Gates that are open."""
    arguments: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Arguments of calls by run and id, as JSON text, if content is exported."""


def read_gate_steps(
    chat_id: str, lines: Sequence[Line], since: int, before: int | None, *, with_content: bool
) -> list[dict[str, Any]]:
    """Return the steps committed in a period, in log order; a chat's line times never decrease."""
    reading = _Reading(with_content)
    found: list[dict[str, Any]] = []
    for line in lines:
        if before is not None and line.updated_at >= before:
            break
        if isinstance(line, Unknown):
            continue
        steps = list(_read_line(reading, line))
        if line.updated_at >= since:
            place = {"at": line.updated_at, "chatId": chat_id, "n": line.n, "line": line.uuid, "runId": line.run_id}
            found += [place | step for step in steps]
    return found


def _read_line(reading: _Reading, line: Known) -> Iterator[dict[str, Any]]:
    match line:
        case Event() if _KIND.decode(line.event).type in _FIELDS:
            yield from _read_event(reading, line)
        case Run():
            for key in [key for key in reading.waiting if key[0] == line.run_id]:
                del reading.waiting[key]
                yield {"step": "cancelled", "gateId": key[1], "runState": line.state}
        case Revocation():
            author = {"by": line.by, "credential": line.credential}
            yield {"step": "revoked", "grantId": line.grant_id} | {key: value for key, value in author.items() if value}
        case Step() if reading.with_content:
            for message in line.messages:
                if message.tool_id and message.tool_calls:
                    given = bytes(message.tool_params).decode() or message.tool_calls[0].function.arguments
                    reading.arguments[line.run_id, message.tool_id] = given
        case _:
            pass


def _read_event(reading: _Reading, line: Event) -> Iterator[dict[str, Any]]:
    members = _OBJECT.decode(line.event)
    kind = _read_text(members, "type")
    gate_id = _read_text(members, "toolId" if kind == "request.submit" else "gateId")
    key = (line.run_id, gate_id)
    fields = {name: _VALUE.decode(members[name]) for name in _FIELDS[kind] if name in members}
    place = {"gateId": gate_id} if gate_id else {}
    content = dict[str, str]()
    if reading.with_content:
        # As text: JSON has numbers that others write in another way.
        content = {name: bytes(members[name]).decode() for name in ("arguments", "payload") if name in members}
        content |= {"note": _read_text(members, "note")} if "note" in members else {}
    match kind:
        case "gate.open":
            reading.kinds[key] = fields.get("kind", "")
            reading.waiting[key] = None
        case "gate.step":
            step = _read_text(members, "step")
            yield {"step": "voted" if step == "vote" else step} | place | fields | content
            return
        case "request.submit":
            if key not in reading.waiting:  # of a program's call, which is no gate
                return
            del reading.waiting[key]
            yield {"step": "answered"} | place | fields | _read_decision(reading.kinds[key], members) | content
            return
        case "gate.close":
            if key in reading.waiting:
                del reading.waiting[key]
                step = "expired" if _read_text(members, "state") == "expired" else "answered"
                yield {"step": step} | place | fields
            return
        case _:
            pass
    arguments = reading.arguments.get((line.run_id, _read_text(members, "toolId")))
    yield {"step": _STEPS[kind]} | place | fields | ({} if arguments is None else {"arguments": arguments})


def _read_decision(kind: str, members: dict[str, Raw]) -> dict[str, Any]:
    """Return an approval's decision, without the text given with it."""
    if kind != "approval":
        return {}
    payload = _VALUE.decode(members["payload"]) if "payload" in members else {}
    payload = payload if isinstance(payload, dict) else {}
    return {name: payload[name] for name in ("decision", "grant", "grantMs") if name in payload}


def _read_text(members: dict[str, Raw], name: str) -> str:
    value = _VALUE.decode(members[name]) if name in members else ""
    return value if isinstance(value, str) else ""

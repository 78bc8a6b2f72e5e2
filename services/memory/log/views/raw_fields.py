"""What views read of a line's raw JSON. A line of which they cannot is damage (services/memory/log/lines.py)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that every index takes."""


class QueryFields(msgspec.Struct, rename="camel", gc=False):
    message: str = ""
    request_id: str = ""
    agent_key: str = ""
    chat_key: str = ""


class Answerers(msgspec.Struct, rename="camel", gc=False):
    any_of: list[str] = []
    not_requester: bool = False
    count: Int64 = 1


class GateEvent(msgspec.Struct, rename="camel", gc=False):
    """Fields of gate.open, gate.step, gate.close, request.submit and grant.make."""

    type: str
    seq: Int64 = 0
    timestamp: Int64 = 0
    gate_id: str = ""
    kind: str = ""
    agent_key: str = ""
    tool_id: str = ""
    tool_name: str = ""
    risk: str = ""
    reason: str = ""
    viewport_key: str = ""
    expires_at: Int64 = 0
    state: str = ""
    answered_by: str = ""
    by: str = ""
    credential: str = ""
    answerers: Answerers | None = None
    step: str = ""
    decision: str = ""
    to: list[str] = []
    until: Int64 = 0
    grant_id: str = ""
    scope: str = ""
    made_by: list[str] = []


class ErrorFields(msgspec.Struct, gc=False):
    code: str = ""


QUERY_FIELDS = msgspec.json.Decoder(QueryFields)
GATE_EVENT = msgspec.json.Decoder(GateEvent)
ERROR_FIELDS = msgspec.json.Decoder(ErrorFields)

"""JSON inside log lines: protos in their JSON form (services/runtime/formats/json_form.py), and fields that views read.

JSON fields keep their bytes, so that large integers survive. A line with unreadable fields is damaged (lines.py).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import encode, rules_of

M = TypeVar("M", bound=Message)

ABSENT = msgspec.Raw()
"""Missing JSON: false, and left out. `Raw | None` accepts only null (msgspec 0.22)."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_SCALAR = msgspec.json.Decoder()

_NULL = msgspec.Raw(b"null")
"""JSON null, written only for numbers that JSON lacks (NaN); read as absent."""

_LINE_BREAKS = str.maketrans("\r\n", "  ")
_PAYLOAD = agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"]


def embed_json(text: str) -> msgspec.Raw:
    """Return JSON text in a form that fits one log line.

    A line break in valid JSON is white space, so a blank replaces it.
    """
    return msgspec.Raw(text.translate(_LINE_BREAKS).encode())


def dump_proto(message: Message) -> msgspec.Raw:
    return msgspec.Raw(encode(message))


def load_proto(data: msgspec.Raw, message: M) -> M:
    """Fill `message` from its JSON form, ignoring unknown names, and return it.

    Raises:
        ValueError: `data` is not its JSON form.
    """
    _fill_message(message, _OBJECT.decode(data))
    return message


def pick_loadable(members: dict[str, Any], message_type: type[Message]) -> dict[str, Any]:
    """Return the members of another program's JSON that `load_proto` accepts; null counts as missing."""
    return {name: value for name, value in members.items() if value is not None and _loads(name, value, message_type())}


def _loads(name: str, value: Any, message: Message) -> bool:
    try:
        load_proto(msgspec.Raw(json.dumps({name: value}, ensure_ascii=False).encode()), message)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def load_delta(data: msgspec.Raw) -> agent_pb2.AgentDelta | None:
    """Load an event from its flat JSON form; None for an unknown type."""
    delta = agent_pb2.AgentDelta()
    values = _OBJECT.decode(data)
    name = _TEXT.decode(values.pop("type")).replace(".", "_", 1)
    field = agent_pb2.AgentDelta.DESCRIPTOR.fields_by_name.get(name)
    if field is None or field.containing_oneof is not _PAYLOAD:
        return None
    payload = getattr(delta, name)
    payload.SetInParent()
    _fill_message(payload, values)
    own = _map_json_names(payload.DESCRIPTOR)
    _fill_message(delta, {key: value for key, value in values.items() if key not in own})
    return delta


@cache
def _map_json_names(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {field.json_name: field for field in descriptor.fields}


@cache
def _is_json(field: FieldDescriptor) -> bool:
    return rules_of(field).json


def _fill_message(message: Message, values: dict[str, msgspec.Raw]) -> None:
    fields = _map_json_names(message.DESCRIPTOR)
    for name, value in values.items():
        field = fields.get(name)
        if field is None or value == _NULL:
            continue
        if field.is_repeated:
            into = getattr(message, field.name)
            for item in _LIST.decode(value):
                if field.message_type is not None:
                    _fill_message(into.add(), _OBJECT.decode(item))
                else:
                    into.append(_SCALAR.decode(item))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill_message(inner, _OBJECT.decode(value))
        else:
            setattr(message, field.name, bytes(value).decode() if _is_json(field) else _SCALAR.decode(value))


Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that every index can store."""


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

"""Messages as JSON, compiled for each message type; AgentDelta as the flat object of the event contract.

Names are lowerCamelCase, 64-bit integers are numbers, nothing is null, and JSON fields keep their text. `event` runs
for each delta: a plain payload is one attrgetter and one %-template.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.runs.fold import TERMINAL
from headrace.v1 import agent_pb2, common_pb2

Encode: TypeAlias = Callable[[Any], bytes]
"""Returns JSON: a value, or `"name":value` pairs for fields and members, perhaps none."""

_dumps = orjson.dumps

_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Replaces line ends, which would end a line of Server-Sent Events."""


def rules_of(field: FieldDescriptor) -> common_pb2.FieldRules:
    return field.GetOptions().Extensions[common_pb2.rules]


def encode(message: Any) -> bytes:
    return _object(message.DESCRIPTOR)(message)


def is_object(text: str) -> bool:
    """Return whether `text` is a JSON object, the only form of arguments that providers accept."""
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def split(message: Any, name: str) -> tuple[bytes, bytes]:
    """Return the JSON of the field `name` ({} for an unset message), and the other `"name":value` pairs."""
    value, others = _parts(message.DESCRIPTOR, name)
    return value(getattr(message, name)), others(message)


class Event(NamedTuple):
    # A tuple, not a frozen dataclass: one is created per delta, and a tuple costs a third.

    seq: int
    json: bytes
    is_terminal: bool


def event(delta: agent_pb2.AgentDelta) -> Event | None:
    """Return the flat object; None if the payload is newer than this code."""
    name = delta.WhichOneof("payload")
    if name is None:
        return None
    form = _payloads()[name]
    seq = delta.seq
    envelope = b""
    if form.in_subagent and delta.HasField("subagent_id"):
        envelope = b',"subagentId":' + _dumps(delta.subagent_id)
    if form.in_task and delta.HasField("task_id"):
        envelope += b',"taskId":' + _dumps(delta.task_id)
    payload = form.members(getattr(delta, name))
    text = b'{"seq":%d,"type":%b,%b%b,"timestamp":%d}' % (seq, form.type, payload, envelope, delta.timestamp)
    return Event(seq, text, form.is_terminal)


@dataclass(frozen=True, slots=True)
class _Payload:
    type: bytes
    members: Encode
    in_subagent: bool
    """Whether to write the envelope's subagentId, because the payload has none."""
    in_task: bool
    is_terminal: bool


@cache
def _payloads() -> dict[str, _Payload]:
    return {
        field.name: _Payload(
            type=_dumps(field.name.replace("_", ".", 1)),
            members=_members(kind),
            in_subagent="subagent_id" not in kind.fields_by_name,
            in_task="task_id" not in kind.fields_by_name,
            is_terminal=field.name in TERMINAL,
        )
        for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
        if (kind := field.message_type) is not None
    }


@cache
def _object(descriptor: Descriptor) -> Encode:
    if descriptor is agent_pb2.AgentDelta.DESCRIPTOR:
        return lambda delta: sent.json if (sent := event(delta)) else b"{}"
    inner = _members(descriptor)
    return lambda message: b"{%b}" % inner(message)


@cache
def _parts(descriptor: Descriptor, name: str) -> tuple[Encode, Encode]:
    others = [field for field in descriptor.fields if field.name != name]
    return _value(descriptor.fields_by_name[name]), _join_pairs(others)


@cache
def _members(descriptor: Descriptor) -> Encode:
    fields = descriptor.fields
    if not fields or not all(_is_plain(field) for field in fields):
        return _join_pairs(fields)
    template = b",".join(b'"%b":%%b' % field.json_name.encode() for field in fields)
    get = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:
        return lambda message: template % _dumps(get(message))
    return lambda message: template % tuple(map(_dumps, get(message)))


def _join_pairs(fields: Iterable[FieldDescriptor]) -> Encode:
    members = [
        (field.name, b'"%b":' % field.json_name.encode(), _value(field), *_when_written(field)) for field in fields
    ]

    def run(message: Message) -> bytes:
        pairs: list[bytes] = []
        for name, prefix, encode_value, has_presence, keeps_empty in members:
            if has_presence:
                if message.HasField(name):
                    pairs.append(prefix + encode_value(getattr(message, name)))
            elif (value := getattr(message, name)) or keeps_empty:
                pairs.append(prefix + encode_value(value))
        return b",".join(pairs)

    return run


def _when_written(field: FieldDescriptor) -> tuple[bool, bool]:
    """Return whether the field is written only if it is set, and if not that, whether an empty value is written."""
    rules = rules_of(field)
    keeps_empty = not rules.omit_empty if field.is_repeated else not rules.json
    return field.has_presence and not rules.json, keeps_empty


def _is_plain(field: FieldDescriptor) -> bool:
    """Whether the field is always written, in orjson's form."""
    has_own_form = field.message_type is not None or field.type == FieldDescriptor.TYPE_BYTES or rules_of(field).json
    return not (field.is_repeated or field.has_presence or has_own_form)


def _value(field: FieldDescriptor) -> Encode:
    one = _item(field)
    return (lambda items: b"[%b]" % b",".join([one(item) for item in items])) if field.is_repeated else one


def _item(field: FieldDescriptor) -> Encode:
    if (kind := field.message_type) is not None:
        return lambda message: _object(kind)(message)  # looked up late: a type may hold itself
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda data: b'"%b"' % base64.b64encode(data)
    if rules_of(field).json:
        return lambda text: text.encode().translate(_ONE_LINE)
    return _dumps


JSON_DEPTH_MAX = 64
"""Maximum nesting of JSON text; deeper text could attack a later parser."""


def measure_json_depth(value: Any) -> int:
    """Return the nesting of parsed JSON: 0 for a scalar, 1 for an empty list."""
    depth, level = -1, [value]
    has_containers = True
    while has_containers:
        depth, has_containers, inner = depth + 1, False, list[Any]()
        for one in level:
            if isinstance(one, (dict, list)):
                has_containers = True
                inner += one.values() if isinstance(one, dict) else one
        level = inner
    return depth

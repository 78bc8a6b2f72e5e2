"""Converts messages to and from their JSON form in the HTTP API, where an AgentDelta is a flat object.

Members that hold JSON of a caller or a model keep their text byte for byte; within nested objects, only the
value is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.v1 import agent_pb2, common_pb2

_ENVELOPE = ("seq", "timestamp", "subagentId", "taskId")

_PAYLOAD_TYPES = {
    field.name: field.message_type for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
}

_decode_value = json.JSONDecoder().raw_decode
_BLANKS = re.compile(r"[ \t\r\n]*")


def parse_event(text: str | bytes) -> agent_pb2.AgentDelta:
    """Return the event; it has no payload if its type is newer than this package.

    Raises:
        ValueError: `text` is not an event.
    """
    text = text.decode() if isinstance(text, bytes) else text
    try:
        return _build_event(json.loads(text), text)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the JSON is not an event") from error


def _build_event(members: Mapping[str, Any], text: str = "") -> agent_pb2.AgentDelta:
    name = members["type"].replace(".", "_", 1)
    delta = agent_pb2.AgentDelta()
    own: Mapping[str, FieldDescriptor] = {}
    if kind := _PAYLOAD_TYPES.get(name):
        own = _fields_by_json_name(kind)
        payload = getattr(delta, name)
        payload.SetInParent()
        texts = dict(_split_object(text)) if text and any(_is_json(field) for field in own.values()) else {}
        fill_message(payload, members, texts)
    # In the payload of a sub-agent or task event, these fields name the sub-agent or task itself.
    fill_message(delta, {key: members[key] for key in _ENVELOPE if key in members and key not in own})
    return delta


@cache
def _fields_by_json_name(descriptor: Any) -> dict[str, FieldDescriptor]:
    return {field.json_name: field for field in descriptor.fields}


@cache
def _is_json(field: FieldDescriptor) -> bool:
    """Return whether the field holds JSON text, which is embedded unquoted in the event's JSON."""
    return field.GetOptions().Extensions[common_pb2.rules].json


def list_members(message: Message) -> dict[str, Any]:
    """Return the members of a request's JSON form: the fields that are set."""
    members: dict[str, Any] = {}
    for field, value in message.ListFields():
        if _is_json(field):
            members[field.json_name] = json.loads(value)
        elif field.message_type is None:
            members[field.json_name] = list(value) if field.is_repeated else value
        else:
            members[field.json_name] = [*map(list_members, value)] if field.is_repeated else list_members(value)
    return members


def fill_message(message: Message, members: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> None:
    """Set the fields in `members`; JSON fields keep the text that `texts` has of them. Unknown names are ignored.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: A member does not have its field's type.
    """
    fields = _fields_by_json_name(message.DESCRIPTOR)
    for name, value in members.items():
        if (field := fields.get(name)) is None:
            continue
        if _is_json(field):
            text = (texts or {}).get(name) or json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            setattr(message, field.name, text)
        elif field.message_type is None and not field.is_repeated:
            setattr(message, field.name, value)
        elif field.message_type is None:
            getattr(message, field.name).extend(value)
        elif field.is_repeated:
            for item in value:
                _fill_nested(getattr(message, field.name).add(), item)
        else:
            nested = getattr(message, field.name)
            nested.SetInParent()
            _fill_nested(nested, value)


def _fill_nested(message: Message, members: Mapping[str, Any]) -> None:
    if isinstance(message, agent_pb2.AgentDelta):
        message.CopyFrom(_build_event(members))
    else:
        fill_message(message, members)


def _split_object(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and raw values of a valid JSON object."""
    position = text.index("{") + 1
    while (position := _skip_blanks(text, position)) < len(text) and text[position] != "}":
        name, position = _decode_value(text, position)
        start = _skip_blanks(text, text.index(":", position) + 1)
        _, position = _decode_value(text, start)
        yield name, text[start:position]
        position = _skip_blanks(text, position)
        position += text[position] == ","


def _skip_blanks(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return match.end() if match is not None else position

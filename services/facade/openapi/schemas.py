"""Converts messages to JSON schemas, following json_form.py and decode.py.

A type used in both requests and answers has two schemas: strict for requests, complete for answers.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from headrace.contract import find_comment
from headrace.v1 import agent_pb2
from services.facade.requests.json_body import INT_RANGES, map_fields
from services.runtime.formats.json_form import rules_of

Schema: TypeAlias = dict[str, Any]
Direction: TypeAlias = Literal["in", "out"]

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_F = FieldDescriptor
_PLAIN: dict[int, Schema] = {
    _F.TYPE_STRING: {"type": "string"},
    _F.TYPE_BOOL: {"type": "boolean"},
    _F.TYPE_DOUBLE: {"type": "number"},
    _F.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}


class Schemas:
    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}

    def refer_to(self, kind: Descriptor, way: Direction) -> Schema:
        is_usual = kind.name.endswith("Request") == (way == "in")
        name = kind.name if is_usual else kind.name + ("Given" if way == "in" else "Kept")
        if name not in self.made:
            self.made[name] = {}  # a type may hold itself
            self.made[name] = (
                self._build_events() if kind is agent_pb2.AgentDelta.DESCRIPTOR else self._build_object(kind, way)
            )
        return {"$ref": f"#/components/schemas/{name}"}

    def build_field(self, field: FieldDescriptor, way: Direction) -> Schema:
        one = self._build_value(field, way)
        if field.is_repeated:
            rules = rules_of(field)
            one = {"type": "array", "items": one} | ({"maxItems": rules.items_max} if rules.items_max else {})
        return _add_description(one, field.full_name)

    def _build_value(self, field: FieldDescriptor, way: Direction) -> Schema:
        rules = rules_of(field)
        if field.message_type is not None:
            return self.refer_to(field.message_type, way)
        if rules.json:
            return {}
        if field.type in INT_RANGES:
            low, high = INT_RANGES[field.type]
            return {"type": "integer", "minimum": low, "maximum": high}
        plain = dict(_PLAIN[field.type])
        if way == "in" and field.type == _F.TYPE_STRING:
            plain |= {"minLength": 1} if rules.required else {}
            plain |= {"maxLength": rules.bytes_max} if rules.bytes_max else {}
            is_there = rules.required or field.is_repeated
            plain |= {"pattern": f"^{UUID}$" if is_there else f"^({UUID})?$"} if rules.uuid else {}
            plain |= {"enum": [*rules.words]} if rules.words else {}
        return plain

    def _build_object(self, kind: Descriptor, way: Direction) -> Schema:
        fields = map_fields(kind) if way == "in" else {field.json_name: field for field in kind.fields}
        named = {field: name for name, field in fields.items() if name != field.json_name}
        required = [
            field.json_name
            for field in kind.fields
            if (rules_of(field).required and field not in named if way == "in" else _is_always_written(field))
        ]
        made: Schema = {
            "type": "object",
            "properties": {name: self.build_field(field, way) for name, field in fields.items()},
        }
        if required:
            made["required"] = required
        if way == "in":
            made["additionalProperties"] = False
        if aliased := [field for field in named if way == "in" and rules_of(field).required]:
            either = [{"required": [name]} for field in aliased for name in (field.json_name, named[field])]
            made["oneOf"] = either
        return _add_description(made, kind.full_name)

    def _build_events(self) -> Schema:
        delta = agent_pb2.AgentDelta.DESCRIPTOR
        options = {_event_type(field): self._build_event(field) for field in delta.oneofs_by_name["payload"].fields}
        by_type = {"propertyName": "type", "mapping": {word: option["$ref"] for word, option in options.items()}}
        return _add_description({"oneOf": [*options.values()], "discriminator": by_type}, delta.full_name)

    def _build_event(self, payload: FieldDescriptor) -> Schema:
        kind = payload.message_type
        assert kind is not None, "a payload is a message"
        inner = self._build_object(kind, "out")
        delta = agent_pb2.AgentDelta.DESCRIPTOR.fields_by_name
        envelope = {name: self.build_field(delta[name], "out") for name in ("seq", "timestamp")}
        places = {delta[name].json_name: self.build_field(delta[name], "out") for name in ("subagent_id", "task_id")}
        name = f"{kind.name}Event"
        self.made[name] = {
            "type": "object",
            "description": find_comment(payload.full_name) or inner.get("description", ""),
            "properties": places | inner["properties"] | envelope | {"type": {"const": _event_type(payload)}},
            "required": ["seq", "type", *inner.get("required", []), "timestamp"],
        }
        return {"$ref": f"#/components/schemas/{name}"}


def _event_type(payload: FieldDescriptor) -> str:
    return payload.name.replace("_", ".", 1)


def _is_always_written(field: FieldDescriptor) -> bool:
    rules = rules_of(field)
    return not rules.omit_empty if field.is_repeated else not (field.has_presence or rules.json)


def _add_description(schema: Schema, full_name: str) -> Schema:
    text = find_comment(full_name)
    return schema | {"description": text} if text else schema

"""The RPCs that the console's lists and forms are drawn from, as JSON: route, fields of the request, fields of an item.

Labels are the fields' names in words, and hints the first paragraph of their proto comments.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor

from headrace.contract import RPCS, find_comment
from services.facade.openapi.schemas import Schemas
from services.facade.proto_routes import Route, load_routes

LABELS = {"id": "ID", "url": "URL", "on_webhook": "Other systems' posts", "runs_max": "Concurrent runs"}
"""Labels of fields whose names are not the words that a person would use."""

_ENDINGS = ("_at", "_id", "_key", "_ms", "_nano_usd", "_s")
"""Endings of names that a label leaves out, because the form of the value shows them."""


def encode_contract() -> bytes:
    found = {
        f"{route.rpc.containing_service.name}.{route.rpc.name}": _describe(route)
        for route in load_routes()
        if route.is_unary and not route.is_archive
    }
    events = sorted({rpc.audit for rpc in RPCS.values() if rpc.audit})
    return orjson.dumps({"rpcs": found, "events": events})


def _describe(route: Route) -> dict[str, Any]:
    answer = route.rpc.output_type
    item = next((field for field in answer.fields if field.is_repeated and field.message_type), None)
    kind = item.message_type if item else None
    return {
        "verb": route.verb,
        "path": route.path,
        "about": _shorten(find_comment(route.rpc.full_name)),
        "schema": _describe_request(route.rpc.input_type),
        "items": item.json_name if item else "",
        "labels": {field.json_name: label(field.name) for field in kind.fields} if kind else {},
    }


def _describe_request(request: Descriptor) -> dict[str, Any]:
    schemas, properties = Schemas(), dict[str, Any]()
    for field in request.fields:
        if field.message_type is None:
            schema = schemas.build_field(field, "in")
            hint = {"description": text} if (text := _shorten(schema.pop("description", ""))) else {}
            if schema.get("type") == "integer":
                schema = {"type": "integer", "minimum": 0} | (
                    {"format": "unix-ms"} if field.name.endswith("_at") else {}
                )
            if field.name == "url":
                schema["format"] = "uri"
            properties[field.json_name] = schema | {"title": label(field.name)} | hint
    required = [name for name, schema in properties.items() if schema.get("minLength")]
    return {"type": "object", "properties": properties, "required": required}


def label(name: str) -> str:
    """Return the name of a field in words."""
    if name in LABELS:
        return LABELS[name]
    unit = " (seconds)" if name.endswith("_s") else ""
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    words = name.removesuffix("_keys").replace("_", " ")
    return words[:1].upper() + words[1:] + ("s" if name.endswith("_keys") else "") + unit


def _shorten(comment: str) -> str:
    """Return the first paragraph of a comment, in the words of a form."""
    text = " ".join(comment.partition("\n\n")[0].replace("`", "").split())
    text = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda name: name[0].replace("_", " "), text)
    return text.replace(", Unix milliseconds", "").replace("Absent:", "Empty:").replace("absent:", "empty:")

#!/usr/bin/env python3
"""Writes the contract as TypeScript, from the OpenAPI document that is made of the protos.

    packaging/typescript/make_contract.py src

contract.ts has the types of all messages in their JSON form and of all calls, routes.ts where each call is sent.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "build/openapi.json"

Schema = dict[str, Any]
PRIMITIVES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
JSON = "application/json"
ENVELOPE = ("code", "msg")
"""What all answers have, which is no part of a message."""

HEADING = "// Made of the protos by packaging/typescript/make_contract.py.\n\n"


def write_type(schema: Schema) -> str:
    match schema:
        case {"$ref": reference}:
            return reference.rpartition("/")[2]
        case {"const": value}:
            return json.dumps(value)
        case {"enum": values}:
            return " | ".join(json.dumps(value) for value in values)
        case {"oneOf": parts} | {"anyOf": parts}:
            return " | ".join(write_type(part) for part in parts)
        case {"type": "array", "items": items}:
            return f"Array<{write_type(items)}>"
        case {"type": "object", "properties": properties} if properties:
            return write_fields(properties, schema.get("required", ()))
        case {"type": "object"}:
            return f"Record<string, {write_type(schema.get('additionalProperties') or {})}>"
        case {"type": name}:
            return PRIMITIVES[name]
        case _:
            return "unknown"


def write_fields(properties: dict[str, Schema], required: Any) -> str:
    lines = ["{"]
    for name, schema in properties.items():
        lines += [f"  {line}" for line in write_comment(schema.get("description", ""))]
        optional = "" if name in required else "?"
        lines.append(f"  {name}{optional}: {indent(write_type(schema))};")
    return "\n".join([*lines, "}"])


def write_comment(text: str) -> list[str]:
    text = text.replace("*/", "* /")
    if "\n" not in text:
        return [f"/** {text} */"] if text else []
    return ["/**", *(f" * {line}".rstrip() for line in text.splitlines()), " */"]


def indent(text: str) -> str:
    return textwrap.indent(text, "  ").lstrip()


def list_operations(document: dict[str, Any]) -> Iterator[tuple[str, str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if name := operation.get("operationId"):
                yield name, method.upper(), path, operation


def list_calls(document: dict[str, Any]) -> Iterator[tuple[str, str, str, Schema]]:
    """Operations whose request and answer are JSON."""
    for name, method, path, operation in list_operations(document):
        body = operation.get("requestBody", {}).get("content", {JSON: {}})
        answer = operation["responses"].get("200", {}).get("content", {})
        if path.startswith("/api/") and list(answer) == [JSON] and list(body) == [JSON]:
            yield name, method, path, operation


def write_parameters(operation: Schema) -> str:
    parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
    described = {one["name"]: one["schema"] | {"description": one.get("description", "")} for one in parameters}
    required = [one["name"] for one in parameters if one.get("required")]
    return write_fields(described, required) if described else "Record<string, never>"


def write_call(name: str, operation: Schema) -> str:
    if "requestBody" in operation:
        request = write_type(operation["requestBody"]["content"][JSON]["schema"])
    else:
        request = write_parameters(operation)
    answer = operation["responses"]["200"]["content"][JSON]["schema"]
    fields = {key: value for key, value in answer["properties"].items() if key not in ENVELOPE}
    response = write_fields(fields, answer["required"])
    lines = [*write_comment(operation["description"]), f"{name}: {{", f"  request: {indent(request)};"]
    return "\n".join([*lines, f"  response: {indent(response)};", "};"])


def write_contract(document: dict[str, Any]) -> str:
    parts: list[str] = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        comment = "".join(f"{line}\n" for line in write_comment(schema.get("description", "")))
        text = write_type({key: value for key, value in schema.items() if key != "description"})
        parts.append(f"{comment}export type {name} = {text};\n")
    watched = next(operation for name, *_, operation in list_operations(document) if name == "WatchGates")
    parts.append(f"export type WatchGatesRequest = {write_parameters(watched)};\n")
    calls = "\n".join(write_call(name, operation) for name, _, _, operation in list_calls(document))
    parts.append(f"/** Calls by their names. */\nexport interface Operations {{\n{textwrap.indent(calls, '  ')}\n}}\n")
    return HEADING + "\n".join(parts)


def write_routes(document: dict[str, Any]) -> str:
    lines = [f'  {name}: ["{method}", "{path}"],' for name, method, path, _ in list_calls(document)]
    return "\n".join([f"{HEADING}export const ROUTES = {{", *lines, "} as const;", ""])


def main() -> None:
    target = Path(sys.argv[1])
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    (target / "contract.ts").write_text(write_contract(document))
    (target / "routes.ts").write_text(write_routes(document))


if __name__ == "__main__":
    main()

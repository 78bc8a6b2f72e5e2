"""Converts the routes to OpenAPI operations."""

from __future__ import annotations

from typing import Any

from headrace.contract import find_comment
from headrace.v1 import tools_pb2
from services.facade.openapi import route_responses
from services.facade.openapi.schemas import Schema, Schemas
from services.facade.proto_routes import Route, load_routes
from services.runtime.formats.json_form import rules_of

TAGS = {"orchestrator": "runs and agents", "memory": "chats", "tools": "tools and files"}

HOOK_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
"""Headers of Standard Webhooks."""

BY_HEADER = {"ReadFileRequest": ("offset", "length")}

OPENAI_STATUSES = (400, 401, 403, 404, 408, 409, 413, 429, 499, 500, 501, 503, 504)


def build_paths(schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for route in load_routes():
        found.setdefault(route.path, {})[route.verb.lower()] = _build_operation(route, schemas)
        if route.is_file:
            found[route.path]["head"] = _build_operation(route, schemas) | {
                "operationId": f"{_name_operation(route)}Head"
            }
    return found | _build_pages() | _build_openai_paths()


def _name_operation(route: Route) -> str:
    """Return the RPC's name; OperatorService's are prefixed because other services use the same names."""
    is_operators = route.rpc.containing_service.name == "OperatorService"
    return f"Operator{route.rpc.name}" if is_operators else route.rpc.name


def _build_operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    text = find_comment(route.rpc.full_name)
    operation: dict[str, Any] = {
        "operationId": _name_operation(route),
        "summary": text.partition("\n")[0],
        "description": text,
        "tags": [TAGS[route.peer]],
        "responses": route_responses.build_success(route, schemas)
        | route_responses.build_failures(route.rpc.full_name, has_body=not route.has_parameters),
    }
    if route.is_upload:
        operation["requestBody"] = _build_form(schemas)
    elif route.is_hook:
        operation["parameters"] = [
            {"name": name, "in": place, "required": True, "schema": {"type": "string"}}
            for name, place in (("schedule_id", "path"), *((header, "header") for header in HOOK_HEADERS))
        ]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": {}}}}
        operation["security"] = []
    elif route.has_body:
        schema = schemas.refer_to(route.rpc.input_type, "in")
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    else:
        operation["parameters"] = _build_parameters(route, schemas)
    return operation


def _build_parameters(route: Route, schemas: Schemas) -> list[dict[str, Any]]:
    left_out = BY_HEADER.get(route.rpc.input_type.name, ())
    found: list[dict[str, Any]] = [
        {
            "name": field.json_name,
            "in": "path" if f"{{{field.name}}}" in route.path else "query",
            "required": rules_of(field).required,
            "schema": schemas.build_field(field, "in"),
        }
        for field in route.rpc.input_type.fields
        if field.name not in left_out
    ]
    if route.is_file:
        found.append({"name": "Range", "in": "header", "schema": {"type": "string", "examples": ["bytes=0-99"]}})
    if "last_seq" in route.rpc.input_type.fields_by_name:
        resume: Schema = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1, "description": "Wins over lastSeq."}
        found.append({"name": "Last-Event-ID", "in": "header", "schema": resume})
    if "cursor" in route.rpc.input_type.fields_by_name:
        resume = {"type": "string", "maxLength": 64, "description": "Wins over cursor."}
        found.append({"name": "Last-Event-ID", "in": "header", "schema": resume})
    return found


def _build_form(schemas: Schemas) -> dict[str, Any]:
    fields = tools_pb2.UploadStart.DESCRIPTOR.fields
    properties: dict[str, Any] = {field.json_name: schemas.build_field(field, "in") for field in fields}
    properties["file"] = {"type": "string", "contentMediaType": "application/octet-stream"}
    # The file's own name is the default.
    required = ["file", *(field.json_name for field in fields if rules_of(field).required and field.name != "name")]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


def _build_pages() -> dict[str, Any]:
    ready = route_responses.wrap_data({"type": "object", "additionalProperties": {"type": "boolean"}})
    live = route_responses.wrap_data({"type": "object", "properties": {"status": {"const": "live"}}})
    return {
        "/healthz": {
            "get": _build_page("Whether the facade lives; asks nobody.", {"application/json": {"schema": live}})
        },
        "/readyz": {
            "get": _build_page(
                "Whether the facade serves; with `all`, whether the services it calls are ready.",
                {"application/json": {"schema": ready}},
                "503",
            )
            | {"parameters": [{"name": "all", "in": "query", "schema": {"type": "string"}, "allowEmptyValue": True}]}
        },
        "/openapi.json": {"get": _build_page("This document.", {"application/json": {"schema": {"type": "object"}}})},
    }


def _build_page(summary: str, content: dict[str, Any], *failures: str) -> dict[str, Any]:
    failed = {status: failure for status, failure in route_responses.build_failures().items() if status in failures}
    return {
        "summary": summary,
        "tags": ["pages"],
        "responses": {"200": {"description": "OK", "content": content}} | failed,
    }


def _build_openai_paths() -> dict[str, Any]:
    model = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    known = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    resume = [
        {"name": "stream", "in": "query", "schema": {"type": "string", "enum": ["true", "false"]}},
        {"name": "starting_after", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}},
    ]
    ask = {"type": "object", "properties": {"model": {"type": "string"}, "stream": {"type": "boolean"}}}
    chat = ask | {"required": ["model", "messages"]}
    return {
        "/v1/models": {"get": _build_openai_route("Agents as models.")},
        "/v1/models/{model}": {"get": _build_openai_route("One agent as a model.", parameters=model)},
        "/v1/chat/completions": {"post": _build_openai_route("Chat completions.", body=chat, streams=True)},
        "/v1/responses": {"post": _build_openai_route("Responses.", body=ask | {"required": ["input"]}, streams=True)},
        "/v1/responses/{id}": {
            "get": _build_openai_route("A run as a response, or its events.", parameters=known + resume, streams=True)
        },
        "/v1/responses/{id}/cancel": {"post": _build_openai_route("Stop a run.", parameters=known)},
    }


def _build_openai_route(
    summary: str, *, parameters: list[dict[str, Any]] | None = None, body: Schema | None = None, streams: bool = False
) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    responses = {"200": {"description": "As OpenAI's API has it.", "content": content}}
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["OpenAI"],
        "responses": responses | route_responses.build_openai_failures(OPENAI_STATUSES),
    }
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation

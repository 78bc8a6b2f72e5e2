"""The responses of a route, including the failures named in its RPC's comment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from headrace.contract import find_comment
from headrace.errors import BY_REASON
from headrace.v1 import tools_pb2
from services.facade.openapi.schemas import Schema, Schemas
from services.facade.proto_routes import Route
from services.facade.responses.envelope import HTTP_STATUS, get_phrase

COMMON_REASONS = (
    "INVALID_REQUEST",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "OVERLOADED",
    "PROVIDER_UNAVAILABLE",
    "UNSUPPORTED",
)

BODY_STATUSES = {408: "the body took too long", 413: "the body is too large"}
COMMON_STATUSES = {
    429: "something is used up, or too large",
    499: "the request, or the run, was cancelled",
    500: "a bug; the text is only logged",
    504: "a service did not answer in time",
}

FAILURE: Schema = {
    "type": "object",
    "description": "Every failure. error.code is the reason, the same word as in `run.error`.",
    "properties": {
        "code": {"type": "integer", "description": "The HTTP status."},
        "msg": {"type": "string", "description": "For people: what happened and what to do next."},
        "data": {"type": "object"},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "examples": sorted(BY_REASON)},
                "retriable": {"type": "boolean", "description": "Whether the same request may succeed later."},
                "details": {"type": "object", "description": "Ids and numbers, for example field and rule."},
            },
            "required": ["code", "retriable", "details"],
        },
    },
    "required": ["code", "msg", "data", "error"],
}

_REASON = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*\b")


def build_failures(full_name: str = "", *, has_body: bool = False) -> dict[str, Any]:
    reasons = [word for word in _REASON.findall(find_comment(full_name)) if word in BY_REASON]
    words_by_status: dict[int, list[str]] = {}
    for reason in dict.fromkeys([*COMMON_REASONS, *reasons]):
        words_by_status.setdefault(HTTP_STATUS[BY_REASON[reason].code], []).append(reason)
    texts = (
        COMMON_STATUSES
        | (BODY_STATUSES if has_body else {})
        | {status: ", ".join(words) for status, words in words_by_status.items()}
    )
    return {str(status): {"description": text, "content": _failure_content()} for status, text in sorted(texts.items())}


def build_success(route: Route, schemas: Schemas) -> dict[str, Any]:
    if route.is_stream_of_events:
        event = schemas.refer_to(route.rpc.output_type, "out")
        text: Schema = {"type": "string", "contentMediaType": "application/json", "contentSchema": event}
        properties: Schema = {
            "id": {"type": "string", "description": "The seq."},
            "event": {"const": "message"},
            "data": {"anyOf": [text, {"const": "[DONE]"}]},
        }
        frame = {"type": "object", "properties": properties, "required": ["data"]}  # as in OpenAPI 3.2
        content = {"text/event-stream": {"schema": frame}}
        if "stream" in route.rpc.input_type.fields_by_name:
            content["application/json"] = {"schema": wrap_data(ONE_ANSWER)}
        return {"200": {"description": STREAM, "content": content}}
    if route.is_watch:
        message = schemas.refer_to(route.rpc.output_type, "out")
        json: Schema = {"type": "string", "contentMediaType": "application/json", "contentSchema": message}
        frame = {"type": "object", "properties": {"event": {"const": "message"}, "data": json}, "required": ["data"]}
        return {"200": {"description": WATCH, "content": {"text/event-stream": {"schema": frame}}}}
    if route.is_archive:
        archive = {"schema": {"type": "string", "contentMediaType": "application/x-tar"}}
        return {"200": {"description": get_phrase(200), "content": {"application/x-tar": archive}}}
    if route.is_file:
        return {str(status): _build_file(status) for status in (200, 206, 304, 416)}
    return {
        "200": {"description": "Success.", "content": {"application/json": {"schema": _build_reply(route, schemas)}}}
    }


WATCH = (
    "Server-Sent Events, each with one message as JSON in `data`, and `: heartbeat` comments in between, until the "
    "client leaves or the server stops."
)

STREAM = (
    "The run's events as Server-Sent Events: `id` is the seq, `data` one event as JSON, `: heartbeat` comments in "
    "between, and `data: [DONE]` after the run's last event. With `stream: false` one JSON answer instead."
)

ONE_ANSWER: Schema = {
    "type": "object",
    "properties": {
        "runId": {"type": "string"},
        "chatId": {"type": "string"},
        "content": {"type": "string", "description": "The final text."},
        "finishReason": {"type": "string"},
        "usage": {"$ref": "#/components/schemas/Usage"},
    },
    "required": ["runId", "chatId", "content", "finishReason", "usage"],
}


def wrap_data(data: Schema, others: dict[str, Schema] | None = None) -> Schema:
    """Build the schema of a success; `others` are the fields next to `data`."""
    properties = {"code": {"const": 0}, "msg": {"const": "success"}, "data": data} | (others or {})
    return {"type": "object", "properties": properties, "required": ["code", "msg", "data"]}


def _build_reply(route: Route, schemas: Schemas) -> Schema:
    kind = route.rpc.output_type
    if kind is tools_pb2.GetViewportResponse.DESCRIPTOR:
        return wrap_data({"description": "The view: {html}, or the JSON of a view that is JSON."})
    if not route.response_body:
        return wrap_data(schemas.refer_to(kind, "out"))
    data = kind.fields_by_name[route.response_body]
    others = {field.json_name: schemas.build_field(field, "out") for field in kind.fields if field is not data}
    return wrap_data(schemas.build_field(data, "out"), others)


def _build_file(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {"description": get_phrase(status)}
    if status < 300:
        response["content"] = {"*/*": {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}}
    if status == 416:
        response["content"] = _failure_content()
    return response


def _failure_content() -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/FailureAnswer"}}}


def build_openai_failures(statuses: Iterable[int]) -> dict[str, Any]:
    reference = {"$ref": "#/components/schemas/OpenAIError"}
    content = {"application/json": {"schema": reference}}
    return {str(status): {"description": "in OpenAI's form", "content": content} for status in statuses}

"""The OpenAPI document, built once."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any

import orjson
from aiohttp import web

from services.facade.openapi import route_responses
from services.facade.openapi.paths import build_paths
from services.facade.openapi.schemas import Schemas

ABOUT = (
    "Runs LLM agents and streams what they do. Made from the gRPC contract in protos/headrace/v1, whose comments are "
    "the descriptions."
)

OPENAI_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def build_document() -> dict[str, Any]:
    schemas = Schemas()
    found = build_paths(schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": metadata.version("headrace"), "description": ABOUT},
        "paths": found,
        "components": {
            "schemas": schemas.made | {"FailureAnswer": route_responses.FAILURE, "OpenAIError": OPENAI_ERROR},
        },
    }


def build_contract_document() -> dict[str, Any]:
    """Build the document without the OpenAI API, which only the embedded facade serves."""
    found = build_document()
    found["paths"] = {path: item for path, item in found["paths"].items() if not path.startswith("/v1/")}
    del found["components"]["schemas"]["OpenAIError"]
    return found


async def serve_document(_: web.Request) -> web.StreamResponse:
    return web.Response(body=_encode_document(), content_type="application/json", charset="utf-8")


@cache
def _encode_document() -> bytes:
    return orjson.dumps(build_document())

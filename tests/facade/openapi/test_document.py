"""The OpenAPI document is valid and complete, and matches what the facade reads and writes."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from openapi_spec_validator import validate

from headrace.contract import find_comment
from headrace.v1 import agent_pb2
from services.facade.openapi.document import build_document
from services.facade.proto_routes import load_routes
from services.runtime.formats import json_form
from tests.support.facade.messages import fill_message
from tests.support.facade.scripted import suite

PAYLOADS = [field.name for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields]


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return build_document()


def check(value: bytes, openapi: dict[str, Any], name: str) -> None:
    """Raise unless `value` matches the schema."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": openapi["components"]}
    jsonschema.Draft202012Validator(schema).validate(orjson.loads(value))


def test_the_document_is_valid(openapi: dict[str, Any]) -> None:
    validate(openapi)


def test_every_route_is_documented_with_its_comment(openapi: dict[str, Any]) -> None:
    for route in load_routes():
        operation = openapi["paths"][route.path][route.verb.lower()]
        assert operation["description"] == find_comment(route.rpc.full_name) != ""
        assert {"200", "400", "500", "503"} <= set(operation["responses"])
    assert {"/healthz", "/readyz", "/openapi.json", "/v1/responses"} <= set(openapi["paths"])


def test_a_route_documents_the_failures_named_in_its_comment(openapi: dict[str, Any]) -> None:
    query = openapi["paths"]["/api/query"]["post"]["responses"]
    assert "NOT_FOUND" in query["404"]["description"]
    assert "CHAT_BUSY" in query["409"]["description"]
    assert "404" not in openapi["paths"]["/api/agents"]["get"]["responses"]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_event_matches_its_schema_full_or_empty(openapi: dict[str, Any], payload: str) -> None:
    field = agent_pb2.AgentDelta.DESCRIPTOR.fields_by_name[payload]
    assert field.message_type is not None
    for inner in (fill_message(field.message_type, json="[1]"), None):
        delta = agent_pb2.AgentDelta(seq=1, timestamp=2)
        getattr(delta, payload).SetInParent()
        if inner is not None:
            getattr(delta, payload).CopyFrom(inner)
        sent = json_form.event(delta)
        assert sent is not None
        check(sent.json, openapi, "AgentDelta")


def test_every_request_matches_its_schema_and_unknown_fields_do_not(openapi: dict[str, Any]) -> None:
    bodies = [route.rpc.input_type for route in load_routes() if route.has_body and not route.is_upload]
    assert bodies
    for kind in bodies:
        body = orjson.loads(json_form.encode(fill_message(kind, text="a", json="[1]")))
        check(orjson.dumps(body), openapi, kind.name)
        with pytest.raises(jsonschema.ValidationError):
            check(orjson.dumps(body | {"wurst": 1}), openapi, kind.name)


def test_a_field_with_two_names_is_accepted_under_exactly_one(openapi: dict[str, Any]) -> None:
    run = {"runId": "11111111-1111-4111-8111-111111111111"}
    for name in ("payload", "params"):
        check(orjson.dumps(run | {name: 1}), openapi, "SubmitRequest")
    for given in ({}, {"payload": 1, "params": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check(orjson.dumps(run | given), openapi, "SubmitRequest")


async def test_the_facade_serves_the_document(tmp_path: Path, openapi: dict[str, Any]) -> None:
    async with suite(tmp_path) as facade, facade.http.get("/openapi.json") as response:
        assert await response.json() == openapi

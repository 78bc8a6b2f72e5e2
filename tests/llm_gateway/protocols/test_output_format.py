"""The output format as providers receive it: in a field, or in the prompt."""

import json
from typing import Any

import pytest

from headrace.v1 import common_pb2, llm_pb2
from tests.support.llm_gateway.conversation import SCHEMA, SYSTEM, USER, read_body
from tests.support.llm_gateway.gateway import Asking

FORM = common_pb2.OutputFormat(schema=SCHEMA)
NAMED = common_pb2.OutputFormat(schema=SCHEMA, name="place", description="a place", strict=True)
ANY = common_pb2.OutputFormat(schema='{"type": "object"}')
HELD, IN_WORDS = {"models": [{"name": "sim-1"}]}, {"models": [{"name": "sim-1", "capabilities": ["tools"]}]}
WORDS = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{SCHEMA}"


async def read_request(asking: Asking, form: common_pb2.OutputFormat, *messages: llm_pb2.Message, **fields: Any) -> Any:
    async with asking(**fields) as gateway:
        return await read_body(gateway, *messages, output_format=form)


@pytest.mark.parametrize(
    ("form", "response_format"),
    [
        (FORM, {"type": "json_schema", "json_schema": {"name": "answer"}}),
        (NAMED, {"type": "json_schema", "json_schema": {"name": "place", "description": "a place", "strict": True}}),
        (ANY, {"type": "json_object"}),
    ],
)
async def test_openai_receives_the_format_in_a_field(
    asking: Asking, form: common_pb2.OutputFormat, response_format: dict[str, Any]
) -> None:
    body = await read_request(asking, form, USER, **HELD)
    sent = body["response_format"]
    if "json_schema" in sent:
        assert sent["json_schema"].pop("schema")["properties"] == {"big": {"const": 1.2345678901234568e22}}
    assert sent == response_format


async def test_anthropic_receives_the_format_next_to_the_effort(asking: Asking) -> None:
    fields: dict[str, Any] = {"protocol": "anthropic", "reasoning": "adaptive"}
    models = [{"name": "sim-1", "capabilities": ["reasoning", "json_schema"]}]
    async with asking(**fields, models=models) as gateway:
        reasoning = llm_pb2.Reasoning(enabled=True, effort="LOW")
        await gateway.chat(output_format=FORM, reasoning=reasoning)
        config = gateway.sim.requests[-1].body["output_config"]
    assert (config["effort"], config["format"]["type"]) == ("low", "json_schema")
    assert config["format"]["schema"]["type"] == "object"


@pytest.mark.parametrize("messages", [[USER], [SYSTEM, USER]], ids=["alone", "behind instructions"])
async def test_other_models_receive_the_format_in_the_prompt(asking: Asking, messages: list[llm_pb2.Message]) -> None:
    body = await read_request(asking, FORM, *messages, **IN_WORDS)
    assert "response_format" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].endswith(WORDS)
    assert body["messages"][0]["content"].startswith("be brief" if len(messages) == 2 else "Answer")


async def test_older_anthropic_models_receive_the_format_in_the_prompt(asking: Asking) -> None:
    body = await read_request(asking, NAMED, SYSTEM, USER, protocol="anthropic", **IN_WORDS)
    assert "output_config" not in body
    assert body["system"] == f"be brief\n\nThe answer is a place\n{WORDS}"


CLOSED = {"type": "object", "additionalProperties": False}
BOUNDED = {"type": "integer", "minimum": 1, "description": "a score"}
REFERENCE = {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize("protocol", ["anthropic", "bedrock"])
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (BOUNDED, {"type": "integer", "description": 'a score It fits {"minimum":1}.'}),
        (
            {"type": "string", "format": "date", "pattern": "^2"},
            {"format": "date", "description": 'It fits {"pattern":"^2"}.'},
        ),
        (
            {"type": "array", "items": REFERENCE, "minItems": 1},
            {"items": REFERENCE, "minItems": 1},
        ),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, {"anyOf": [{"type": "null"}, {"const": 1}]}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, None),
        ({"type": "object"}, None),
        ({"$ref": "#/$defs/Loop"}, None),
        ({"$ref": "https://elsewhere.example"}, None),
    ],
)
async def test_claude_receives_closed_schemas_without_bounds(
    asking: Asking, protocol: str, given: Any, sent: Any
) -> None:
    """It refuses other schemas; constraints it cannot express are put into the prompt: https://github.com/laravel/ai/issues/715,
    https://github.com/BerriAI/litellm/pull/35811, https://github.com/ax-llm/ax/issues/458 (2026)."""
    leaf = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": True}
    loop = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Loop"}}}
    schema = {"type": "object", "properties": {"x": given}, "$defs": {"Node": leaf} | ({} if sent else {"Loop": loop})}
    form = common_pb2.OutputFormat(schema=json.dumps(schema))
    async with asking([{"steps": [{"content": "done"}]}], protocol=protocol, **HELD) as gateway:
        body = await read_body(gateway, output_format=form)
    if sent is None:
        assert "x" in str(body["system"])
        assert not body.keys() & {"output_config", "outputConfig"}
        return
    if protocol == "anthropic":
        found = body["output_config"]["format"]["schema"]
    else:
        found = json.loads(body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"])
    kind = {"type": given["type"]} if isinstance(given.get("type"), str) else {}
    closed = leaf | {"additionalProperties": False}
    assert found == CLOSED | {"properties": {"x": kind | sent}, "$defs": {"Node": closed}}


async def test_an_exponentially_large_schema_is_sent_in_the_prompt(asking: Asking) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(25):
        schema = {"type": ["object", "null", "object"], "properties": {"x": schema}}
    form = common_pb2.OutputFormat(schema=json.dumps(schema))
    async with asking([{"steps": [{"content": "done"}]}], protocol="anthropic", **HELD) as gateway:
        assert "output_config" not in await read_body(gateway, output_format=form)

"""An answer's form as providers get it: in a field of their own, or in words."""

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
async def test_openai_has_a_field_for_it(
    asking: Asking, form: common_pb2.OutputFormat, response_format: dict[str, Any]
) -> None:
    body = await read_request(asking, form, USER, **HELD)
    sent = body["response_format"]
    if "json_schema" in sent:
        assert sent["json_schema"].pop("schema")["properties"] == {"big": {"const": 1.2345678901234568e22}}
    assert sent == response_format


async def test_anthropic_has_a_field_for_it_beside_the_effort(asking: Asking) -> None:
    fields: dict[str, Any] = {"protocol": "anthropic", "reasoning": "adaptive"}
    models = [{"name": "sim-1", "capabilities": ["reasoning", "json_schema"]}]
    async with asking(**fields, models=models) as gateway:
        reasoning = llm_pb2.Reasoning(enabled=True, effort="LOW")
        await gateway.hear(output_format=FORM, reasoning=reasoning)
        config = gateway.sim.requests[-1].body["output_config"]
    assert (config["effort"], config["format"]["type"]) == ("low", "json_schema")
    assert config["format"]["schema"]["type"] == "object"


@pytest.mark.parametrize("messages", [[USER], [SYSTEM, USER]], ids=["alone", "behind instructions"])
async def test_other_models_are_told_in_words(asking: Asking, messages: list[llm_pb2.Message]) -> None:
    body = await read_request(asking, FORM, *messages, **IN_WORDS)
    assert "response_format" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].endswith(WORDS)
    assert body["messages"][0]["content"].startswith("be brief" if len(messages) == 2 else "Answer")


async def test_anthropics_older_models_are_told_in_words(asking: Asking) -> None:
    body = await read_request(asking, NAMED, SYSTEM, USER, protocol="anthropic", **IN_WORDS)
    assert "output_config" not in body
    assert body["system"] == f"be brief\n\nThe answer is a place\n{WORDS}"
